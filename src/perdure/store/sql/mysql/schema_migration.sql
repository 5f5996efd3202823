create table if not exists schema_migration (
    number integer not null,
    name varchar(64) not null,
    checksum char(64) not null,
    applied_at bigint not null,
    constraint schema_migration_pk primary key (number)
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;
