-- The first schema: the log, what is derived from it, and who works on it. `perdure` stands for the schema's name.
-- Every text that is compared is compared byte by byte, whatever the database's own collation.
-- phase: pre

-- Microseconds since the epoch, by the clock of the server and not by the start of the transaction.
create function perdure.clock() returns bigint language sql volatile parallel safe as
$$ select (extract(epoch from clock_timestamp()) * 1000000)::bigint $$;

-- Ends the transaction unless what is said holds: the rest of it is on its way already.
create function perdure.fits(holds boolean) returns boolean language plpgsql as $$
begin
    if holds is not true then
        raise exception 'perdure: the batch does not fit what is recorded; nothing of it was written'
            using errcode = 'P0001', hint = 'this is expected when two processes work on one run';
    end if;
    return true;
end $$;

create table perdure.run (
    no bigint generated always as identity,
    id text collate "C" not null,
    workflow text collate "C" not null,
    workflow_version text collate "C" not null,
    status text collate "C" not null,
    queue text collate "C" not null,
    priority bigint not null,
    wake_at bigint,
    owner text collate "C",
    epoch bigint not null,
    inbox_n bigint not null,
    deadline_at bigint,
    input_digest bigint not null,
    tags text,
    detail text,
    created_at bigint not null,
    updated_at bigint not null,
    constraint run_pk primary key (id),
    constraint run_id_ck check (id <> ''),
    constraint run_status_ck check (
        status in (
            'pending', 'running', 'waiting', 'paused', 'parked',
            'completed', 'failed', 'cancelled', 'terminated', 'continued'
        )
    ),
    constraint run_owner_ck check ((status = 'running') = (owner is not null)),
    constraint run_wake_at_ck check (wake_at is null or status in ('pending', 'waiting'))
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- What is due. The workflow stands before the priority, so that a worker steps over runs it has no code for.
create index run_due on perdure.run (queue, workflow, priority desc, wake_at, no) where wake_at is not null;

create index run_listing on perdure.run (status, created_at, id);

create index run_owner on perdure.run (owner) where owner is not null;

-- The log. That an event belongs to a run is what keeps the lock shut after a purge.
create table perdure.event (
    run_id text collate "C" not null,
    seq bigint not null,
    type text collate "C" not null,
    op text,
    kind text,
    name text,
    attempt bigint not null,
    at bigint not null,
    epoch bigint not null,
    commit_id bigint not null,
    state text,
    digest bigint,
    detail bytea,
    input bytea,
    payload bytea,
    chain bytea not null,
    constraint event_pk primary key (run_id, seq),
    constraint event_run_fk foreign key (run_id) references perdure.run (id)
) with (autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

create table perdure.inbox (
    run_id text collate "C" not null,
    n bigint not null,
    kind text not null,
    sent_at bigint not null,
    detail bytea,
    constraint inbox_pk primary key (run_id, n),
    constraint inbox_run_fk foreign key (run_id) references perdure.run (id)
) with (autovacuum_vacuum_scale_factor = 0.02);

create table perdure.tag (
    key text collate "C" not null,
    value text collate "C" not null,
    run_id text collate "C" not null,
    constraint tag_pk primary key (key, value, run_id)
);

create table perdure.request (
    run_id text collate "C" not null,
    workflow text not null,
    input_digest bigint not null,
    status text not null,
    purged_at bigint not null,
    actor text,
    reason text,
    constraint request_pk primary key (run_id)
);

create table perdure.worker (
    id text collate "C" not null,
    name text not null,
    host text not null,
    pid bigint not null,
    state text collate "C" not null,
    started_at bigint not null,
    heartbeat_at bigint not null,
    expires_at bigint not null,
    queues text not null,
    workflows text not null,
    constraint worker_pk primary key (id),
    constraint worker_state_ck check (state in ('live', 'dead', 'left'))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Only a purge deletes from the log, and it writes the tombstone first.
create function perdure.keep_log() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        if exists (select 1 from perdure.request where run_id = old.run_id) then
            return old;
        end if;
    end if;
    raise exception 'the log is append-only' using errcode = 'integrity_constraint_violation';
end $$;

create trigger event_no_update before update or delete on perdure.event
for each row execute function perdure.keep_log();

create trigger event_no_truncate before truncate on perdure.event
for each statement execute function perdure.keep_log();
