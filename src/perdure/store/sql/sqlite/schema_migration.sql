create table schema_migration (
    number integer not null,
    name text not null,
    checksum text not null,
    applied_at integer not null,
    constraint schema_migration_pk primary key (number)
) strict;
