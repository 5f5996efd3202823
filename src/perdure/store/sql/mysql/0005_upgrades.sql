-- Plans of upgrades: what was found for each run, so that what is done later is what somebody has read.
-- phase: post

create table if not exists upgrade_plan (
    id varchar(64) not null,
    workflow varchar(255) not null,
    to_version bigint not null,
    label varchar(255) not null,
    selector mediumtext not null,
    actor mediumtext not null,
    at bigint not null,
    constraint upgrade_plan_pk primary key (id)
) engine = innodb row_format = dynamic character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

-- One run of a plan: its binding, its epoch and the length of its log at the check, and the verdict as JSON.
create table if not exists upgrade_item (
    plan_id varchar(64) not null,
    n bigint not null,
    run_id varchar(500) not null,
    from_version bigint not null,
    epoch bigint not null,
    events bigint not null,
    verdict mediumtext not null,
    constraint upgrade_item_pk primary key (plan_id, n)
) engine = innodb row_format = dynamic character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

set @change = (
    select if(
        exists (
            select 1 from information_schema.statistics
            where table_schema = database() and table_name = 'run_upgrade' and index_name = 'run_upgrade_plan'
        ),
        'do 0',
        'create index run_upgrade_plan on run_upgrade (plan_id)'
    )
);

prepare change_of_record from @change;

execute change_of_record;

deallocate prepare change_of_record;

insert ignore into refusal values ('plans of upgrades are append-only');

drop trigger if exists upgrade_plan_no_update;

create trigger upgrade_plan_no_update before update on upgrade_plan for each row
insert into refusal values ('plans of upgrades are append-only');

drop trigger if exists upgrade_item_no_update;

create trigger upgrade_item_no_update before update on upgrade_item for each row
insert into refusal values ('plans of upgrades are append-only');
