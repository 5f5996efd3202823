do $$
begin
    if to_regnamespace('perdure') is null then
        create schema perdure;
    end if;
end $$;

create table perdure.schema_migration (
    number integer not null,
    name text not null,
    checksum text not null,
    applied_at bigint not null,
    constraint schema_migration_pk primary key (number)
);
