-- Queues with limits: what is set, what is in use, whose turn it is.
-- phase: post

alter table perdure.run add column partition_key text collate "C";

-- The key stands before the workflow: runs without one are one line, and each key of a workflow and priority is one.
drop index perdure.run_due;
create index run_due on perdure.run (queue, partition_key, workflow, priority desc, wake_at, no)
where wake_at is not null;

-- One row per line of runs with a partition key that wait: no line without its row. `turn_at` is not later than the
-- time of the first of them, unless their key had its turn later than that.
create table perdure.lane (
    queue text collate "C" not null,
    workflow text collate "C" not null,
    priority bigint not null,
    partition_key text collate "C" not null,
    turn_at bigint not null,
    constraint lane_pk primary key (queue, workflow, priority, partition_key)
) with (autovacuum_vacuum_scale_factor = 0.02);

create index lane_turn on perdure.lane (queue, workflow, priority desc, turn_at, partition_key);

-- A run joins its line. Whoever joins holds the row's key, so that nobody forgets the line meanwhile; nobody who joins
-- waits for another who does.
create function perdure.join_lane() returns trigger language plpgsql as $$
begin
    loop
        update perdure.lane set turn_at = new.wake_at
        where queue = new.queue and workflow = new.workflow and priority = new.priority
            and partition_key = new.partition_key and turn_at > new.wake_at;
        exit when found;
        perform 1 from perdure.lane
        where queue = new.queue and workflow = new.workflow and priority = new.priority
            and partition_key = new.partition_key
        for key share;
        exit when found;
        insert into perdure.lane (queue, workflow, priority, partition_key, turn_at)
        values (new.queue, new.workflow, new.priority, new.partition_key, new.wake_at)
        on conflict do nothing;
        exit when found;
    end loop;
    return null;
end $$;

create trigger run_lane_insert after insert on perdure.run for each row
when (new.partition_key is not null and new.wake_at is not null) execute function perdure.join_lane();

create trigger run_lane_update after update of wake_at on perdure.run for each row
when (new.partition_key is not null and new.wake_at is not null) execute function perdure.join_lane();

-- Note when it is a key's turn again, and forget its line if nobody waits in it. Only where nobody is just joining, so
-- that what is seen here is all there is; else a turn is noted and nothing is put off.
create function perdure.turn_lane(of_queue text, of_key text, of_workflow text, of_priority bigint, turn bigint)
returns void language plpgsql as $$
declare
    first_at bigint;
begin
    perform 1 from perdure.lane as n
    where n.queue = of_queue and n.workflow = of_workflow and n.priority = of_priority and n.partition_key = of_key
    for update skip locked;
    if not found then
        perform 1 from perdure.lane as n
        where n.queue = of_queue and n.workflow = of_workflow and n.priority = of_priority
            and n.partition_key = of_key
        for no key update skip locked;
        if found and turn > 0 then
            update perdure.lane as n set turn_at = turn
            where n.queue = of_queue and n.workflow = of_workflow and n.priority = of_priority
                and n.partition_key = of_key;
        end if;
        return;
    end if;
    select r.wake_at into first_at from perdure.run as r
    where r.queue = of_queue and r.partition_key = of_key and r.workflow = of_workflow and r.priority = of_priority
        and r.wake_at is not null
    order by r.wake_at limit 1;
    if first_at is null then
        delete from perdure.lane as n
        where n.queue = of_queue and n.workflow = of_workflow and n.priority = of_priority
            and n.partition_key = of_key;
    else
        update perdure.lane as n set turn_at = greatest(turn, first_at)
        where n.queue = of_queue and n.workflow = of_workflow and n.priority = of_priority
            and n.partition_key = of_key;
    end if;
end $$;

create table perdure.queue (
    name text collate "C" not null,
    concurrency bigint,
    concurrency_per_worker bigint,
    concurrency_per_key bigint,
    rate_limit bigint,
    rate_us bigint,
    ageing_us bigint,
    fair bigint not null,
    hold_while_waiting bigint not null,
    paused bigint not null,
    declared text,
    changed_at bigint not null,
    changes bigint not null,
    counted boolean not null generated always as (
        concurrency is not null or concurrency_per_worker is not null or concurrency_per_key is not null
        or rate_limit is not null or fair = 1 or paused = 1
    ) stored,
    constraint queue_pk primary key (name),
    constraint queue_limit_ck check (
        least(concurrency, concurrency_per_worker, concurrency_per_key, rate_limit, rate_us, ageing_us, 1) > 0
    ),
    constraint queue_rate_ck check ((rate_limit is null) = (rate_us is null)),
    constraint queue_flag_ck check (fair in (0, 1) and hold_while_waiting in (0, 1) and paused in (0, 1))
) with (fillfactor = 50);

create table perdure.queue_change (
    queue text collate "C" not null,
    n bigint not null,
    at bigint not null,
    actor text not null,
    reason text not null,
    commit_id bigint not null,
    change text not null,
    constraint queue_change_pk primary key (queue, n)
);

create function perdure.keep_changes() returns trigger language plpgsql as $$
begin
    raise exception 'the record of changes is append-only' using errcode = 'integrity_constraint_violation';
end $$;

create trigger queue_change_no_update before update or delete on perdure.queue_change
for each row execute function perdure.keep_changes();

create trigger queue_change_no_truncate before truncate on perdure.queue_change
for each statement execute function perdure.keep_changes();

-- A place in a queue's limits. It counts while its run is owned in its epoch, so nothing need take it back.
create table perdure.slot (
    run_id text collate "C" not null,
    queue text collate "C" not null,
    epoch bigint not null,
    constraint slot_pk primary key (run_id)
) with (autovacuum_vacuum_scale_factor = 0.02);

create index slot_queue on perdure.slot (queue);

-- Claims of a queue with a rate: how many, counted under a time not before any of them.
create table perdure.queue_start (
    queue text collate "C" not null,
    at bigint not null,
    n bigint not null,
    constraint queue_start_pk primary key (queue, at)
) with (autovacuum_vacuum_scale_factor = 0.02);

-- Which run has a deduplication key. It counts until that run has ended.
create table perdure.deduplication (
    queue text collate "C" not null,
    key text collate "C" not null,
    run_id text collate "C" not null,
    constraint deduplication_pk primary key (queue, key),
    constraint deduplication_run_uq unique (run_id)
);

-- Whether a run has not ended, as of now and not as of the start of the statement that asks.
create function perdure.is_open(of_run text) returns boolean language plpgsql volatile as $$
begin
    return exists (
        select 1 from perdure.run
        where id = of_run and status in ('pending', 'running', 'waiting', 'paused', 'parked')
    );
end $$;
