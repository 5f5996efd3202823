-- Runs are bound to a version of their workflow, and what is due is found by the code that it needs.
-- phase: post

-- The version; 0 while a run is bound to none.
alter table run add column version_id integer not null default 0;

-- What a worker must have to run it: the version and the workflow as one text, so that one key finds what is due.
alter table run add column code text generated always as (version_id || ' ' || workflow) virtual;

drop index run_due;
create index run_due on run (queue, partition_key, code, priority desc, wake_at) where wake_at is not null;

drop trigger run_lane_insert;
drop trigger run_lane_update;
drop table lane;

-- One row per line of runs with a partition key that wait: no line without its row. `turn_at` is not later than the
-- time of the first of them, unless their key had its turn later than that.
create table lane (
    queue text not null,
    code text not null,
    priority integer not null,
    partition_key text not null,
    turn_at integer not null,
    constraint lane_pk primary key (queue, code, priority, partition_key)
) strict, without rowid;

create index lane_turn on lane (queue, code, priority desc, turn_at, partition_key);

insert into lane (queue, code, priority, partition_key, turn_at)
select queue, code, priority, partition_key, min(wake_at) from run
where partition_key is not null and wake_at is not null
group by queue, code, priority, partition_key;

create trigger run_lane_insert after insert on run
when new.partition_key is not null and new.wake_at is not null
begin
    insert into lane (queue, code, priority, partition_key, turn_at)
    values (new.queue, new.code, new.priority, new.partition_key, new.wake_at)
    on conflict do update set turn_at = min(turn_at, excluded.turn_at);
end;

create trigger run_lane_update after update of wake_at, version_id on run
when new.partition_key is not null and new.wake_at is not null
begin
    insert into lane (queue, code, priority, partition_key, turn_at)
    values (new.queue, new.code, new.priority, new.partition_key, new.wake_at)
    on conflict do update set turn_at = min(turn_at, excluded.turn_at);
end;

-- Every change of a run's version, by whom and why.
create table run_upgrade (
    run_id text not null,
    new_epoch integer not null,
    from_version integer not null,
    to_version integer not null,
    plan_id text,
    forced integer not null,
    actor text not null,
    reason text not null,
    at integer not null,
    constraint run_upgrade_pk primary key (run_id, new_epoch)
) strict, without rowid;

create trigger run_upgrade_no_update before update on run_upgrade
begin
    select raise(abort, 'the record of upgrades is append-only');
end;

create trigger run_binding before update of version_id on run
when
    old.version_id <> 0 and new.version_id <> old.version_id
    and not exists (
        select 1 from run_upgrade as u
        where u.run_id = new.id and u.new_epoch = new.epoch and u.to_version = new.version_id
    )
begin
    select raise(abort, 'a run is bound to its version; the binding changes only through an upgrade');
end;

-- The versions a worker carries, and the worker it was started by to carry them.
alter table worker add column versions text not null default '[]';
alter table worker add column parent text;

-- Grows with every change of versions, labels and routes, so that everybody knows when to read them anew.
alter table meta add column version_count integer not null default 0;
