-- Queues with limits: what is set, what is in use, whose turn it is.
-- phase: post

alter table run add column partition_key text;

-- The key stands before the workflow: runs without one are one line, and each key of a workflow and priority is one.
drop index run_due;
create index run_due on run (queue, partition_key, workflow, priority desc, wake_at) where wake_at is not null;

-- One row per line of runs with a partition key that wait: no line without its row. `turn_at` is not later than the
-- time of the first of them, unless their key had its turn later than that.
create table lane (
    queue text not null,
    workflow text not null,
    priority integer not null,
    partition_key text not null,
    turn_at integer not null,
    constraint lane_pk primary key (queue, workflow, priority, partition_key)
) strict, without rowid;

create index lane_turn on lane (queue, workflow, priority desc, turn_at, partition_key);

create trigger run_lane_insert after insert on run
when new.partition_key is not null and new.wake_at is not null
begin
    insert into lane (queue, workflow, priority, partition_key, turn_at)
    values (new.queue, new.workflow, new.priority, new.partition_key, new.wake_at)
    on conflict do update set turn_at = min(turn_at, excluded.turn_at);
end;

create trigger run_lane_update after update of wake_at on run
when new.partition_key is not null and new.wake_at is not null
begin
    insert into lane (queue, workflow, priority, partition_key, turn_at)
    values (new.queue, new.workflow, new.priority, new.partition_key, new.wake_at)
    on conflict do update set turn_at = min(turn_at, excluded.turn_at);
end;

create table queue (
    name text not null,
    concurrency integer,
    concurrency_per_worker integer,
    concurrency_per_key integer,
    rate_limit integer,
    rate_us integer,
    ageing_us integer,
    fair integer not null,
    hold_while_waiting integer not null,
    paused integer not null,
    declared text,
    changed_at integer not null,
    changes integer not null,
    constraint queue_pk primary key (name),
    constraint queue_limit_ck check (
        min(
            coalesce(concurrency, 1), coalesce(concurrency_per_worker, 1), coalesce(concurrency_per_key, 1),
            coalesce(rate_limit, 1), coalesce(rate_us, 1), coalesce(ageing_us, 1)
        ) > 0
    ),
    constraint queue_rate_ck check ((rate_limit is null) = (rate_us is null)),
    constraint queue_flag_ck check (fair in (0, 1) and hold_while_waiting in (0, 1) and paused in (0, 1))
) strict, without rowid;

create table queue_change (
    queue text not null,
    n integer not null,
    at integer not null,
    actor text not null,
    reason text not null,
    commit_id integer not null,
    change text not null,
    constraint queue_change_pk primary key (queue, n)
) strict, without rowid;

create trigger queue_change_no_update before update on queue_change
begin
    select raise(abort, 'the record of changes is append-only');
end;

create trigger queue_change_no_delete before delete on queue_change
begin
    select raise(abort, 'the record of changes is append-only');
end;

-- A place in a queue's limits. It counts while its run is owned in its epoch, so nothing need take it back.
create table slot (
    run_id text not null,
    queue text not null,
    epoch integer not null,
    constraint slot_pk primary key (run_id)
) strict, without rowid;

create index slot_queue on slot (queue);

-- Claims of a queue with a rate: how many, counted under a time not before any of them.
create table queue_start (
    queue text not null,
    at integer not null,
    n integer not null,
    constraint queue_start_pk primary key (queue, at)
) strict, without rowid;

-- Which run has a deduplication key. It counts until that run has ended.
create table deduplication (
    queue text not null,
    key text not null,
    run_id text not null,
    constraint deduplication_pk primary key (queue, key),
    constraint deduplication_run_uq unique (run_id)
) strict, without rowid;

-- Grows with every change of a queue, so that everybody knows when to read them anew.
alter table meta add column queue_version integer not null default 0;
