-- Queues with limits: what is set, what is in use, whose turn it is.
-- phase: post

-- The key stands before the workflow: runs without one are one line, and each key of a workflow and priority is one.
-- An index of more than 3072 bytes there cannot be, so these texts are no longer than the program lets them be.
set @change = (
    select if(
        exists (
            select 1 from information_schema.columns
            where table_schema = database() and table_name = 'run' and column_name = 'partition_key'
        ),
        'do 0',
        'alter table run modify column workflow varchar(255) not null, add column partition_key varchar(200), drop index run_due, add index run_due (due_queue, partition_key, workflow, priority, wake_at)'
    )
);

prepare change_of_run from @change;

execute change_of_run;

deallocate prepare change_of_run;

-- One row per line of runs with a partition key that wait: no line without its row. `turn_at` is not later than the
-- time of the first of them, unless their key had its turn later than that.
create table if not exists lane (
    queue varchar(255) not null,
    workflow varchar(255) not null,
    priority bigint not null,
    partition_key varchar(200) not null,
    turn_at bigint not null,
    constraint lane_pk primary key (queue, workflow, priority, partition_key),
    index lane_turn (queue, workflow, priority, turn_at, partition_key)
) engine = innodb row_format = dynamic character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

create table if not exists queue (
    name varchar(255) not null,
    concurrency bigint,
    concurrency_per_worker bigint,
    concurrency_per_key bigint,
    rate_limit bigint,
    rate_us bigint,
    ageing_us bigint,
    fair bigint not null,
    hold_while_waiting bigint not null,
    paused bigint not null,
    declared mediumtext,
    changed_at bigint not null,
    changes bigint not null,
    constraint queue_pk primary key (name),
    constraint queue_limit_ck check (
        coalesce(concurrency, 1) > 0 and coalesce(concurrency_per_worker, 1) > 0
        and coalesce(concurrency_per_key, 1) > 0 and coalesce(rate_limit, 1) > 0 and coalesce(rate_us, 1) > 0
        and coalesce(ageing_us, 1) > 0
    ),
    constraint queue_rate_ck check ((rate_limit is null) = (rate_us is null)),
    constraint queue_flag_ck check (fair in (0, 1) and hold_while_waiting in (0, 1) and paused in (0, 1))
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

create table if not exists queue_change (
    queue varchar(255) not null,
    n bigint not null,
    at bigint not null,
    actor mediumtext not null,
    reason mediumtext not null,
    commit_id bigint not null,
    `change` mediumtext not null,
    constraint queue_change_pk primary key (queue, n)
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

-- A place in a queue's limits. It counts while its run is owned in its epoch, so nothing need take it back.
create table if not exists slot (
    run_id varchar(500) not null,
    queue varchar(255) not null,
    epoch bigint not null,
    constraint slot_pk primary key (run_id),
    index slot_queue (queue)
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

-- Claims of a queue with a rate: how many, counted under a time not before any of them.
create table if not exists queue_start (
    queue varchar(255) not null,
    at bigint not null,
    n bigint not null,
    constraint queue_start_pk primary key (queue, at)
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

-- Which run has a deduplication key. It counts until that run has ended.
create table if not exists deduplication (
    queue varchar(255) not null,
    `key` varchar(255) not null,
    run_id varchar(500) not null,
    constraint deduplication_pk primary key (queue, `key`),
    constraint deduplication_run_uq unique (run_id)
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

insert ignore into refusal values ('the record of changes is append-only');

drop trigger if exists queue_change_no_update;

create trigger queue_change_no_update before update on queue_change for each row
insert into refusal values ('the record of changes is append-only');

drop trigger if exists queue_change_no_delete;

create trigger queue_change_no_delete before delete on queue_change for each row
insert into refusal values ('the record of changes is append-only');

drop trigger if exists run_lane_insert;

create trigger run_lane_insert after insert on run for each row
insert into lane (queue, workflow, priority, partition_key, turn_at)
select new.queue, new.workflow, new.priority, new.partition_key, new.wake_at from dual
where new.partition_key is not null and new.wake_at is not null
on duplicate key update turn_at = least(turn_at, new.wake_at);

drop trigger if exists run_lane_update;

create trigger run_lane_update after update on run for each row
insert into lane (queue, workflow, priority, partition_key, turn_at)
select new.queue, new.workflow, new.priority, new.partition_key, new.wake_at from dual
where new.partition_key is not null and new.wake_at is not null
on duplicate key update turn_at = least(turn_at, new.wake_at);
