-- The first schema: the log, what is derived from it, and who works on it.
-- phase: pre

create table run (
    no integer not null,
    id text not null,
    workflow text not null,
    workflow_version text not null,
    status text not null,
    queue text not null,
    priority integer not null,
    wake_at integer,
    owner text,
    epoch integer not null,
    inbox_n integer not null,
    deadline_at integer,
    input_digest integer not null,
    tags text,
    detail text,
    created_at integer not null,
    updated_at integer not null,
    constraint run_pk primary key (no),
    constraint run_id_uq unique (id),
    constraint run_id_ck check (id <> ''),
    constraint run_status_ck check (
        status in (
            'pending', 'running', 'waiting', 'paused', 'parked',
            'completed', 'failed', 'cancelled', 'terminated', 'continued'
        )
    ),
    constraint run_owner_ck check ((status = 'running') = (owner is not null)),
    constraint run_wake_at_ck check (wake_at is null or status in ('pending', 'waiting'))
) strict;

-- What is due. The workflow stands before the priority, so that a worker steps over runs it has no code for.
create index run_due on run (queue, workflow, priority desc, wake_at) where wake_at is not null;

create index run_listing on run (status, created_at, id);

-- The log, as it is stored: with the run's number in place of its id. The key is then a few bytes, so that the places
-- where many runs grow share pages; rows themselves go to the end of the table. See ADR 0011.
create table event_log (
    run_no integer not null,
    seq integer not null,
    type text not null,
    op text,
    kind text,
    name text,
    attempt integer not null,
    at integer not null,
    epoch integer not null,
    commit_id integer not null,
    state text,
    digest integer,
    detail blob,
    input blob,
    payload blob,
    chain blob not null,
    constraint event_log_pk primary key (run_no, seq),
    constraint event_log_run_fk foreign key (run_no) references run (no)
) strict;

-- The log, as it is read.
create view event (
    run_id, seq, type, op, kind, name, attempt, at, epoch, commit_id, state, digest, detail, input, payload, chain
) as
select
    r.id, e.seq, e.type, e.op, e.kind, e.name, e.attempt, e.at, e.epoch, e.commit_id, e.state, e.digest,
    e.detail, e.input, e.payload, e.chain
from run as r
inner join event_log as e on r.no = e.run_no;

create trigger event_log_no_update before update on event_log
begin
    select raise(abort, 'the log is append-only');
end;

-- Only a purge deletes, and it writes the tombstone first.
create trigger event_log_no_delete before delete on event_log
when not exists (
    select 1 from run as r
    inner join request as q on r.id = q.run_id
    where r.no = old.run_no
)
begin
    select raise(abort, 'the log is append-only');
end;

create table inbox (
    run_id text not null,
    n integer not null,
    kind text not null,
    sent_at integer not null,
    detail blob,
    constraint inbox_pk primary key (run_id, n),
    constraint inbox_run_fk foreign key (run_id) references run (id)
) strict, without rowid;

create table tag (
    key text not null,
    value text not null,
    run_id text not null,
    constraint tag_pk primary key (key, value, run_id)
) strict, without rowid;

create table request (
    run_id text not null,
    workflow text not null,
    input_digest integer not null,
    status text not null,
    purged_at integer not null,
    actor text,
    reason text,
    constraint request_pk primary key (run_id)
) strict, without rowid;

create table worker (
    id text not null,
    name text not null,
    host text not null,
    pid integer not null,
    state text not null,
    started_at integer not null,
    heartbeat_at integer not null,
    expires_at integer not null,
    queues text not null,
    workflows text not null,
    constraint worker_pk primary key (id),
    constraint worker_state_ck check (state in ('live', 'dead', 'left'))
) strict, without rowid;

-- One row: what all processes that share the file agree on.
create table meta (
    id integer not null,
    file_id text not null,
    boot_id text not null,
    clock_base integer not null,
    last_at integer not null,
    constraint meta_pk primary key (id),
    constraint meta_id_ck check (id = 1)
) strict;
