-- Signatures of versions.
-- phase: pre

-- What a key vouches for: the code of a version, under the label with this `seq`. Both in hex.
create table version_signature (
    seq integer not null,
    key_id text not null,
    value text not null,
    signed_by text not null,
    signed_at integer not null,
    constraint version_signature_pk primary key (seq, value),
    constraint version_signature_label_fk foreign key (seq) references version_label (seq)
) strict;

create trigger version_signature_no_update before update on version_signature
begin
    select raise(abort, 'signatures are append-only');
end;

create trigger version_signature_no_delete before delete on version_signature
begin
    select raise(abort, 'signatures are append-only');
end;
