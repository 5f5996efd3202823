-- How often versions, labels, status or routes have changed.
-- phase: post

create table if not exists meta (
    id bigint not null,
    version_count bigint not null default 0,
    constraint meta_pk primary key (id),
    constraint meta_id_ck check (id = 1)
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

insert ignore into meta (id) values (1);
