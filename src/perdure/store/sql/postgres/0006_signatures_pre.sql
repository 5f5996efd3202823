-- Signatures of versions.
-- phase: pre

-- What a key vouches for: the code of a version, under the label with this `seq`. Both in hex.
create table perdure.version_signature (
    seq bigint not null,
    key_id text collate "C" not null,
    value text collate "C" not null,
    signed_by text not null,
    signed_at bigint not null,
    constraint version_signature_pk primary key (seq, value),
    constraint version_signature_label_fk foreign key (seq) references perdure.version_label (seq)
);

create trigger version_signature_no_update before update or delete on perdure.version_signature
for each row execute function perdure.keep_versions('signatures are append-only');

create trigger version_signature_no_truncate before truncate on perdure.version_signature
for each statement execute function perdure.keep_versions('signatures are append-only');
