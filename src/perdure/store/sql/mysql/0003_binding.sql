-- Runs are bound to a version of their workflow, and what is due is found by the code that it needs.
-- phase: post

-- The version; 0 while a run is bound to none. The code is what a worker must have to run it: the version and the
-- workflow as one text, so that one key finds what is due.
set @change = (
    select if(
        exists (
            select 1 from information_schema.columns
            where table_schema = database() and table_name = 'run' and column_name = 'version_id'
        ),
        'do 0',
        'alter table run add column version_id bigint not null default 0, add column code varchar(280) generated always as (concat(version_id, '' '', workflow)) stored, drop index run_due, add index run_due (due_queue, partition_key, code, priority, wake_at)'
    )
);

prepare change_of_run from @change;

execute change_of_run;

deallocate prepare change_of_run;

drop trigger if exists run_lane_insert;

drop trigger if exists run_lane_update;

-- A line is named by the code of its runs.
set @change = (
    select if(
        exists (
            select 1 from information_schema.columns
            where table_schema = database() and table_name = 'lane' and column_name = 'code'
        ),
        'do 0',
        'alter table lane change column workflow code varchar(280) not null'
    )
);

prepare change_of_lane from @change;

execute change_of_lane;

deallocate prepare change_of_lane;

delete from lane;

insert into lane (queue, code, priority, partition_key, turn_at)
select queue, code, priority, partition_key, min(wake_at) from run
where partition_key is not null and wake_at is not null
group by queue, code, priority, partition_key;

create trigger run_lane_insert after insert on run for each row
insert into lane (queue, code, priority, partition_key, turn_at)
select new.queue, new.code, new.priority, new.partition_key, new.wake_at from dual
where new.partition_key is not null and new.wake_at is not null
on duplicate key update turn_at = least(turn_at, new.wake_at);

create trigger run_lane_update after update on run for each row
insert into lane (queue, code, priority, partition_key, turn_at)
select new.queue, new.code, new.priority, new.partition_key, new.wake_at from dual
where new.partition_key is not null and new.wake_at is not null
on duplicate key update turn_at = least(turn_at, new.wake_at);

-- Every change of a run's version, by whom and why.
create table if not exists run_upgrade (
    run_id varchar(500) not null,
    new_epoch bigint not null,
    from_version bigint not null,
    to_version bigint not null,
    plan_id varchar(64),
    forced bigint not null,
    actor mediumtext not null,
    reason mediumtext not null,
    at bigint not null,
    constraint run_upgrade_pk primary key (run_id, new_epoch)
) engine = innodb row_format = dynamic character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

insert ignore into refusal values
('the record of upgrades is append-only'),
('a binding changes only through an upgrade');

drop trigger if exists run_upgrade_no_update;

create trigger run_upgrade_no_update before update on run_upgrade for each row
insert into refusal values ('the record of upgrades is append-only');

drop trigger if exists run_binding;

create trigger run_binding before update on run for each row
insert into refusal
select r.reason from refusal as r
where
    r.reason = 'a binding changes only through an upgrade'
    and old.version_id <> 0 and new.version_id <> old.version_id
    and not exists (
        select 1 from run_upgrade as u
        where u.run_id = new.id and u.new_epoch = new.epoch and u.to_version = new.version_id
    );

-- The versions a worker carries, and the worker it was started by to carry them.
set @change = (
    select if(
        exists (
            select 1 from information_schema.columns
            where table_schema = database() and table_name = 'worker' and column_name = 'versions'
        ),
        'do 0',
        'alter table worker add column versions mediumtext, add column parent varchar(255)'
    )
);

prepare change_of_worker from @change;

execute change_of_worker;

deallocate prepare change_of_worker;

update worker set versions = '[]' where versions is null;

-- One row: what grows with every change of versions, labels and routes, so that everybody knows when to read them anew.
create table if not exists meta (
    id bigint not null,
    version_count bigint not null,
    constraint meta_pk primary key (id)
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

insert ignore into meta (id, version_count) values (1, 0);
