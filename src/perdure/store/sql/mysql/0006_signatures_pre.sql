-- Signatures of versions.
-- phase: pre

-- What a key vouches for: the code of a version, under the label with this `seq`. Both in hex.
create table if not exists version_signature (
    seq bigint not null,
    key_id varchar(255) not null,
    value varchar(255) not null,
    signed_by mediumtext not null,
    signed_at bigint not null,
    constraint version_signature_pk primary key (seq, value),
    constraint version_signature_label_fk foreign key (seq) references version_label (seq)
) engine = innodb row_format = dynamic character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

insert ignore into refusal values ('signatures are append-only');

drop trigger if exists version_signature_no_update;

create trigger version_signature_no_update before update on version_signature for each row
insert into refusal values ('signatures are append-only');

drop trigger if exists version_signature_no_delete;

create trigger version_signature_no_delete before delete on version_signature for each row
insert into refusal values ('signatures are append-only');
