-- The first schema: the log, what is derived from it, and who works on it.
-- Every statement may be run again: each ends the transaction, so half of them may be done when the server stops.
-- Texts are compared byte by byte, blanks at the end included; the collation that does so has one name on MariaDB and
-- another on MySQL, and each reads only its own of the two comments.
-- phase: pre

create table if not exists run (
    no bigint not null auto_increment,
    id varchar(500) not null,
    workflow varchar(500) not null,
    workflow_version text not null,
    status varchar(16) not null,
    queue varchar(255) not null,
    priority bigint not null,
    wake_at bigint,
    owner varchar(255),
    epoch bigint not null,
    inbox_n bigint not null,
    deadline_at bigint,
    input_digest bigint not null,
    tags mediumtext,
    detail mediumtext,
    created_at bigint not null,
    updated_at bigint not null,
    due_queue varchar(255),
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
    constraint run_wake_at_ck check (wake_at is null or status in ('pending', 'waiting')),
    constraint run_due_queue_ck check ((due_queue is null) = (wake_at is null)),
    -- What is due. There are no partial indexes: `due_queue` is the queue where there is a wake-up time, and null
    -- elsewhere, so that no search meets what is not waiting for a worker.
    index run_due (due_queue, workflow, priority, wake_at),
    index run_listing (status, created_at, id),
    index run_owner (owner)
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

-- The log. That an event belongs to a run is what keeps the lock shut after a purge.
create table if not exists event (
    run_id varchar(500) not null,
    seq bigint not null,
    type varchar(64) not null,
    op text,
    kind text,
    name text,
    attempt bigint not null,
    at bigint not null,
    epoch bigint not null,
    commit_id bigint not null,
    state varchar(64),
    digest bigint,
    detail longblob,
    input longblob,
    payload longblob,
    chain varbinary(64) not null,
    constraint event_pk primary key (run_id, seq),
    constraint event_run_fk foreign key (run_id) references run (id)
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

create table if not exists inbox (
    run_id varchar(500) not null,
    n bigint not null,
    kind varchar(64) not null,
    sent_at bigint not null,
    detail longblob,
    constraint inbox_pk primary key (run_id, n),
    constraint inbox_run_fk foreign key (run_id) references run (id)
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

create table if not exists tag (
    `key` varchar(255) not null,
    value varchar(500) not null,
    run_no bigint not null,
    constraint tag_pk primary key (`key`, value, run_no),
    index tag_run (run_no)
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

create table if not exists request (
    run_id varchar(500) not null,
    workflow varchar(500) not null,
    input_digest bigint not null,
    status varchar(16) not null,
    purged_at bigint not null,
    actor mediumtext,
    reason mediumtext,
    constraint request_pk primary key (run_id)
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

create table if not exists worker (
    id varchar(255) not null,
    name text not null,
    host text not null,
    pid bigint not null,
    state varchar(16) not null,
    started_at bigint not null,
    heartbeat_at bigint not null,
    expires_at bigint not null,
    queues mediumtext not null,
    workflows mediumtext not null,
    constraint worker_pk primary key (id),
    constraint worker_state_ck check (state in ('live', 'dead', 'left'))
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

-- How a statement in the middle of a batch, or a trigger, says no without a procedure: it inserts one of these rows
-- again, where something is not as it must be. The error ends the batch, and its text is the row.
create table if not exists refusal (
    reason varchar(64) not null,
    constraint refusal_pk primary key (reason)
) engine = innodb character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

insert ignore into refusal values ('the batch does not fit'), ('the log is append-only');

drop trigger if exists event_no_update;

create trigger event_no_update before update on event for each row
insert into refusal values ('the log is append-only');

drop trigger if exists event_no_delete;

-- Only a purge deletes, and it writes the tombstone first.
create trigger event_no_delete before delete on event for each row
insert into refusal
select 'the log is append-only' from refusal
where reason = 'the log is append-only' and not exists (select 1 from request where run_id = old.run_id);
