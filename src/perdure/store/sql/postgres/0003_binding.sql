-- How often versions, labels, status or routes have changed.
-- phase: post

create table perdure.meta (
    id bigint not null,
    version_count bigint not null default 0,
    constraint meta_pk primary key (id),
    constraint meta_id_ck check (id = 1)
) with (fillfactor = 50);

insert into perdure.meta (id) values (1);
