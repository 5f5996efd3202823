-- Every statement the PostgreSQL backend runs. `perdure` stands for the schema's name, a question mark for a parameter.
-- What a batch runs takes arrays, one per column: one prepared statement, whatever the number of rows.

-- begin: begin a transaction
begin

-- begin_alone: the same where nothing may be set for a whole session
begin isolation level read committed

-- commit: end a transaction
commit

-- rollback: undo a transaction
rollback

-- clock: the time of the server; asked before there is a schema, too
select (extract(epoch from clock_timestamp()) * 1000000)::bigint

-- insert_event: add rows to logs
insert into perdure.event
select * from unnest(
    $1::text [], $2::bigint [], $3::text [], $4::text [], $5::text [], $6::text [], $7::bigint [], $8::bigint [],
    $9::bigint [], $10::bigint [], $11::text [], $12::bigint [], $13::bytea [], $14::bytea [], $15::bytea [],
    $16::bytea []
)

-- check_places: these places of logs must be taken
select perdure.fits(count(*) = cardinality($1::text []))
from unnest($1::text [], $2::bigint []) as p (run_id, seq)
where exists (select 1 from perdure.event as e where e.run_id = p.run_id and e.seq = p.seq)

-- insert_run: create runs
insert into perdure.run (
    id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at
)
select * from unnest(
    $1::text [], $2::text [], $3::text [], $4::text [], $5::text [], $6::bigint [], $7::bigint [], $8::text [],
    $9::bigint [], $10::bigint [], $11::bigint [], $12::bigint [], $13::text [], $14::text [], $15::bigint [],
    $16::bigint []
)

-- check_free: none of these ids may have been purged; asked after the insert, which waits for a purge under way
select perdure.fits(not exists (select 1 from perdure.request where run_id = any($1::text [])))

-- insert_tag: make runs findable by their tags
insert into perdure.tag (key, value, run_id) select * from unnest($1::text [], $2::text [], $3::text [])

-- change_run: compare-and-set on state and epoch; a message that came in meanwhile makes an unowned run due
with change as (
    select * from unnest(
        $1::text [], $2::text [], $3::bigint [], $4::text [], $5::bigint [], $6::text [], $7::bigint [],
        $8::bigint [], $9::text [], $10::bigint []
    ) as c (run_id, before, epoch_before, status, epoch, owner, wake_at, inbox_seen, detail, at)
),

done as (
    update perdure.run as r
    set
        status = c.status,
        epoch = c.epoch,
        owner = c.owner,
        wake_at = case
            when c.status in ('pending', 'waiting') and r.inbox_n > c.inbox_seen
                then least(c.wake_at, perdure.clock())
            else c.wake_at
        end,
        detail = c.detail,
        updated_at = c.at
    from change as c
    where r.id = c.run_id and r.status = c.before and r.epoch = c.epoch_before
    returning 1
)

select perdure.fits((select count(*) from done) = cardinality($1::text []))

-- take_message: consume messages
delete from perdure.inbox as i
using unnest($1::text [], $2::bigint []) as c (run_id, n)
where i.run_id = c.run_id and i.n = c.n

-- send: number a message, make an unowned run due, and put the message into the inbox
with numbered as (
    update perdure.run
    set
        inbox_n = inbox_n + 1,
        wake_at = case when status in ('pending', 'waiting') then least(wake_at, perdure.clock()) else wake_at end
    where id = $1::text and status in ('pending', 'running', 'waiting', 'paused', 'parked')
    returning inbox_n
),

sent as (
    insert into perdure.inbox (run_id, n, kind, sent_at, detail)
    select $1::text, inbox_n, $2::text, $3::bigint, $4::bytea from numbered
    returning 1
)

select perdure.fits((select count(*) from sent) = 1)

-- insert_request: leave a tombstone, which also opens the log for deletion
with gone as (
    select id, workflow, input_digest, status from perdure.run
    where id = $1::text and status in ('completed', 'failed', 'cancelled', 'terminated', 'continued')
    for update
),

buried as (
    insert into perdure.request (run_id, workflow, input_digest, status, purged_at, actor, reason)
    select id, workflow, input_digest, status, $2::bigint, $3::text, $4::text from gone
    returning 1
)

select perdure.fits((select count(*) from buried) = 1)

-- purge_event: delete a purged run's log
delete from perdure.event where run_id = $1::text

-- purge_inbox: delete a purged run's messages
delete from perdure.inbox where run_id = $1::text

-- purge_tag: delete a purged run's tags, found by its own list of them
delete from perdure.tag as t
using perdure.run as r, json_each_text(r.tags::json) as j
where r.id = $1::text and t.key = j.key and t.value = j.value and t.run_id = r.id

-- purge_run: delete a purged run's row
delete from perdure.run where id = $1::text

-- savepoint: what follows can be undone by itself
savepoint part

-- release: keep what was done since the savepoint
release savepoint part

-- undo: undo what was done since the savepoint
rollback to savepoint part

-- standings: state, epoch and last seq of these runs, which stay as they are until the transaction ends
select
    r.id, r.status, r.epoch,
    (select e.seq from perdure.event as e where e.run_id = r.id order by e.seq desc limit 1)
from perdure.run as r
where r.id = any(?::text [])
order by r.id
for update of r

-- commit_at: who wrote a place of a log
select commit_id from perdure.event where run_id = ? and seq = ?

-- going_on: those of some runs that are neither ended nor parked
select id from perdure.run
where id = any(?::text []) and status in ('pending', 'running', 'waiting', 'paused')

-- get_run: one run
select
    id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at
from perdure.run where id = ?

-- get_request: what a purged run left
select * from perdure.request where run_id = ?

-- load: a log from a place on
select * from perdure.event where run_id = ? and seq >= ? order by seq limit ?

-- load_tails: the ends of several logs, each in order
select e.*
from unnest(?::text []) as j (run_id)
cross join lateral (
    select * from perdure.event where run_id = j.run_id order by seq desc limit ?
) as e
order by e.run_id, e.seq

-- load_tail: the end of a log, backwards
select * from perdure.event where run_id = ? order by seq desc limit ?

-- inbox: waiting messages
select * from perdure.inbox where run_id = ? order by n

-- limit_claim: a claim waits for nobody, and a frozen claimer is not waited for
select set_config('lock_timeout', '200', true), set_config('idle_in_transaction_session_timeout', ?, true)

-- insert_worker: a worker begins its life; done twice if the answer was lost
insert into perdure.worker values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (id) do nothing

-- is_gone: whether a worker's runs may be taken over
select 1 from perdure.worker where id = ? and state <> 'live'

-- is_live: whether a worker may claim
select 1 from perdure.worker where id = ? and state = 'live'

-- heartbeat: extend a live worker's lease, never an upsert
update perdure.worker as w set heartbeat_at = t.now, expires_at = t.now + ?
from (select perdure.clock() as now) as t
where id = ? and state = 'live'

-- leave: end a worker's life
update perdure.worker as w set heartbeat_at = t.now, expires_at = t.now, state = 'left'
from (select perdure.clock() as now) as t
where id = ? and state = 'live'

-- owned: what a worker owns
select id, epoch, inbox_n from perdure.run where owner = ?

-- sweep_due: whether a sweep would change anything, and when the next lease ends
select
    exists (
        select 1 from perdure.worker where state <> 'live' or expires_at <= (select perdure.clock())
    ) or exists (
        select 1 from perdure.run as r
        where r.owner is not null and not exists (select 1 from perdure.worker as w where w.id = r.owner)
    ),
    (select min(expires_at) from perdure.worker where state = 'live')

-- expired: workers whose lease has ended
select id from perdure.worker where state = 'live' and expires_at <= (select perdure.clock()) order by id

-- bury: mark a worker whose lease has ended
update perdure.worker set state = 'dead' where id = ? and state = 'live' and expires_at <= (select perdure.clock())

-- orphans: owners without a row
select distinct r.owner from perdure.run as r
where r.owner is not null and not exists (select 1 from perdure.worker as w where w.id = r.owner)

-- forget: remove rows of workers that are gone and own nothing
delete from perdure.worker as w
where w.state <> 'live' and not exists (select 1 from perdure.run as r where r.owner = w.id)

-- slots: every priority level with a time to wake up, per queue and workflow, by skipping through the index: the first
-- time, and whether it has come; a row of nothing if there are workers to take over from
with recursive slot (queue, workflow, priority) as (
    select
        q.name,
        w.name,
        (
            select r.priority from perdure.run as r
            where r.queue = q.name and r.workflow = w.name and r.wake_at is not null
            order by r.priority desc limit 1
        )
    from unnest(?::text []) as q (name)
    cross join unnest(?::text []) as w (name)
    union all
    select
        s.queue,
        s.workflow,
        (
            select r.priority from perdure.run as r
            where
                r.queue = s.queue and r.workflow = s.workflow and r.priority < s.priority and r.wake_at is not null
            order by r.priority desc limit 1
        )
    from slot as s
    where s.priority is not null
)

select s.priority, s.queue, s.workflow, f.wake_at, f.wake_at <= (select perdure.clock())
from slot as s
cross join lateral (
    select r.wake_at from perdure.run as r
    where r.queue = s.queue and r.workflow = s.workflow and r.priority = s.priority and r.wake_at is not null
    order by r.wake_at limit 1
) as f
where s.priority is not null
union all
select null, null, null, null, true where exists (select 1 from perdure.worker where state <> 'live')
order by 1 desc nulls last

-- due: the runs of one slot that nobody else is claiming, longest due first
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at
from perdure.run
where queue = ? and workflow = ? and priority = ? and wake_at <= (select perdure.clock())
order by wake_at, no
limit ?
for no key update skip locked

-- bereft: runs whose owner is gone
select
    r.no, r.id, r.workflow, r.workflow_version, r.status, r.queue, r.priority, r.wake_at, r.owner, r.epoch, r.inbox_n,
    r.deadline_at, r.input_digest, r.tags, r.detail, r.created_at, r.updated_at
from perdure.run as r
inner join perdure.worker as w on r.owner = w.id
where
    w.state <> 'live'
    and r.queue = any(?::text [])
    and r.workflow = any(?::text [])
order by r.priority desc, r.no
limit ?
for no key update of r skip locked

-- only: one run, unless somebody else is claiming it
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at
from perdure.run
where id = ? and (owner is not null or wake_at <= (select perdure.clock()))
for no key update skip locked

-- by_status: runs in one state; conditions and order follow
select
    id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at
from perdure.run
where status = ?

-- by_tag: runs with a tag; conditions and order follow
select
    id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at
from perdure.tag
inner join perdure.run on tag.run_id = run.id
where tag.key = ? and tag.value = ?

-- and_tag: condition: another tag
and exists (select 1 from perdure.tag as o where o.key = ? and o.value = ? and o.run_id = run.id)

-- and_status: condition: one of some states
and status = any(?::text [])

-- and_workflow: condition: of this workflow
and workflow = ?

-- and_version: condition: of this version
and workflow_version = ?

-- and_queue: condition: of this queue
and queue = ?

-- and_since: condition: created at or after
and created_at >= ?

-- and_until: condition: created before
and created_at < ?

-- and_before: condition: further down in the listing than this row
and (created_at, id) < (?, ?)

-- newest: order of a listing
order by created_at desc, id desc
limit ?

-- count_runs: runs by state
select status, count(*) from perdure.run group by status

-- waiting: what is due, by queue and workflow
select queue, workflow, count(*), min(wake_at) from perdure.run
where wake_at <= (select perdure.clock())
group by queue, workflow
order by queue, workflow

-- workers: known workers
select * from perdure.worker order by id

-- migrations: what was applied
select number, name, checksum from perdure.schema_migration order by number

-- note_migration: remember what was applied
insert into perdure.schema_migration (number, name, checksum, applied_at) values (?, ?, ?, perdure.clock())

-- lock_schema: one migration at a time, until the transaction ends
select pg_advisory_xact_lock(hashtextextended('perdure schema ' || ?, 0))

-- our_tables: which of these names are tables of the schema
select c.relname from pg_catalog.pg_class as c
inner join pg_catalog.pg_namespace as n on c.relnamespace = n.oid
where n.nspname = ? and c.relname = any(?::text [])

-- session: who serves this connection, and what this transaction is given
select
    pg_backend_pid(), current_setting('server_version_num')::bigint, current_setting('server_version'),
    pg_is_in_recovery(), current_setting('transaction_read_only'), current_setting('server_encoding'),
    current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'), current_setting('data_sync_retry', true)

-- unlimited: let this transaction take its time
select
    set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true),
    set_config('lock_timeout', '0', true)

-- secure: put something into the write-ahead log, for a commit to wait for
select pg_logical_emit_message(true, 'perdure', '')

-- hint: tell other processes that something has changed; it need not outlive a crash
select set_config('synchronous_commit', 'off', true), pg_notify(?, ?)
