-- The statements that are the PostgreSQL backend's own. `perdure` stands for the schema's name, a question mark for a
-- parameter.
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
insert into perdure.event (
    run_id, seq, type, op, kind, name, attempt, at, epoch, commit_id, state, digest, detail, input, payload, chain
)
select * from unnest(
    $1::text [], $2::bigint [], $3::text [], $4::text [], $5::text [], $6::text [], $7::bigint [], $8::bigint [],
    $9::bigint [], $10::bigint [], $11::text [], $12::bigint [], $13::bytea [], $14::bytea [], $15::bytea [],
    $16::bytea []
)

-- check_places: these places of logs must be taken
select perdure.fits(count(*) = cardinality($1::text []))
from unnest($1::text [], $2::bigint []) as p (run_id, seq)
where exists (select 1 from perdure.event as e where e.run_id = p.run_id and e.seq = p.seq)

-- insert_run: create runs; no queue of those that are claimed as they are created may count its claims
insert into perdure.run (
    id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
)
select * from unnest(
    $1::text [], $2::text [], $3::text [], $4::text [], $5::text [], $6::bigint [], $7::bigint [], $8::text [],
    $9::bigint [], $10::bigint [], $11::bigint [], $12::bigint [], $13::text [], $14::text [], $15::bigint [],
    $16::bigint [], $17::text [], $18::bigint []
)
where
    (
        select perdure.fits(not exists (select 1 from perdure.queue as q where q.name = any($19::text []) and q.counted))
    )

-- check_free: none of these ids may have been purged; asked after the insert, which waits for a purge under way
select perdure.fits(not exists (select 1 from perdure.request where run_id = any($1::text [])))

-- check_versions: nothing of versions, labels and routes may have changed since
select perdure.fits((select m.version_count from perdure.meta as m where m.id = 1) = all($1::bigint []))

-- bind_run: bind a run that is bound to no version
update perdure.run set version_id = $2::bigint, workflow_version = $3::text where id = $1::text and version_id = 0

-- add_upgrade: record a change of a run's version
insert into perdure.run_upgrade (run_id, new_epoch, from_version, to_version, plan_id, forced, actor, reason, at)
values ($1::text, $2::bigint, $3::bigint, $4::bigint, $5::text, $6::bigint, $7::text, $8::text, $9::bigint)

-- rebind_run: bind a run to another version; only with its record
update perdure.run set version_id = $2::bigint, workflow_version = $3::text where id = $1::text

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

-- tell: the same, but nothing depends on it: a run that has ended does not get the message
with numbered as (
    update perdure.run
    set
        inbox_n = inbox_n + 1,
        wake_at = case when status in ('pending', 'waiting') then least(wake_at, perdure.clock()) else wake_at end
    where id = $1::text and status in ('pending', 'running', 'waiting', 'paused', 'parked')
    returning inbox_n
)

insert into perdure.inbox (run_id, n, kind, sent_at, detail)
select $1::text, inbox_n, $2::text, $3::bigint, $4::bytea from numbered

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

-- standings_free: the same, of those of these runs that nobody else holds
select
    r.id, r.status, r.epoch,
    (select e.seq from perdure.event as e where e.run_id = r.id order by e.seq desc limit 1)
from perdure.run as r
where r.id = any(?::text [])
order by r.id
for update of r skip locked

-- there: those of these runs that there are
select id from perdure.run where id = any(?::text [])

-- hurry: wait for a lock hardly at all, until the transaction or its part ends
select set_config('lock_timeout', '10', true)

-- load_tails: the ends of several logs, each in order
select
    e.run_id, e.seq, e.type, e.op, e.kind, e.name, e.attempt, e.at, e.epoch, e.commit_id, e.state, e.digest,
    e.detail, e.input, e.payload, e.chain
from unnest(?::text []) as j (run_id)
cross join lateral (
    select
        run_id, seq, type, op, kind, name, attempt, at, epoch, commit_id, state, digest, detail, input, payload, chain
    from perdure.event where run_id = j.run_id order by seq desc limit ?
) as e
order by e.run_id, e.seq

-- limit_claim: a claim waits for nobody, and a frozen claimer is not waited for
select set_config('lock_timeout', '200', true), set_config('idle_in_transaction_session_timeout', ?, true)

-- insert_worker: a worker begins its life; done twice if the answer was lost
insert into perdure.worker (
    id, name, host, pid, state, started_at, heartbeat_at, expires_at, queues, workflows, versions, parent
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (id) do nothing

-- heartbeat: extend a live worker's lease, never an upsert; and what it owns, or a row of nothing
with beaten as (
    update perdure.worker as w set heartbeat_at = t.now, expires_at = t.now + ?
    from (select perdure.clock() as now) as t
    where id = ? and state = 'live'
    returning w.id
)

select r.id, r.epoch, r.inbox_n from beaten left join perdure.run as r on beaten.id = r.owner

-- leave: end a worker's life; and what it owns, or a row of nothing
with beaten as (
    update perdure.worker as w set heartbeat_at = t.now, expires_at = t.now, state = 'left'
    from (select perdure.clock() as now) as t
    where id = ? and state = 'live'
    returning w.id
)

select r.id, r.epoch, r.inbox_n from beaten left join perdure.run as r on beaten.id = r.owner

-- owned: what a worker owns
select id, epoch, inbox_n from perdure.run where owner = ?

-- sweep_due: whether a sweep would change anything, when the next lease ends, and how many workers live
select
    exists (
        select 1 from perdure.worker where state <> 'live' or expires_at <= (select perdure.clock())
    ) or exists (
        select 1 from perdure.run as r
        where r.owner is not null and not exists (select 1 from perdure.worker as w where w.id = r.owner)
    ),
    (select min(expires_at) from perdure.worker where state = 'live'),
    (select count(*) from perdure.worker where state = 'live')

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

-- levels: every priority of a queue with a time to wake up in some gaps, and the first such time, by skipping through the
-- indexes; the first such time of priorities that are known, from a time on; a row of nothing if there are workers to take
-- over from; and what this took, in microseconds
-- Ordered by the key, too, which is null in all of them: else the planner does not see that the index is in this order,
-- and sorts all that waits. One index entry gives both priority and time: it may lie behind many dead ones.
with recursive level (code, keyed, lowest, priority, head_at) as (
    select g.code, g.keyed, g.lowest, h.priority, h.head_at
    from unnest(
        $2::text [], $3::text []::bigint [], $4::text []::bigint [], $5::text []::bigint []
    ) as g (code, keyed, highest, lowest)
    cross join lateral (
        (
            select r.priority, r.wake_at from perdure.run as r
            where
                g.keyed = 0 and r.queue = $1::text and r.partition_key is null and r.code = g.code
                and r.priority <= g.highest and r.priority >= g.lowest and r.wake_at is not null
            order by r.partition_key, r.priority desc, r.wake_at limit 1
        )
        union all
        (
            select n.priority, n.turn_at from perdure.lane as n
            where
                g.keyed = 1 and n.queue = $1::text and n.code = g.code
                and n.priority <= g.highest and n.priority >= g.lowest
            order by n.priority desc, n.turn_at limit 1
        )
    ) as h (priority, head_at)
    union all
    select s.code, s.keyed, s.lowest, h.priority, h.head_at
    from level as s
    cross join lateral (
        (
            select r.priority, r.wake_at from perdure.run as r
            where
                s.keyed = 0 and r.queue = $1::text and r.partition_key is null and r.code = s.code
                and r.priority < s.priority and r.priority >= s.lowest and r.wake_at is not null
            order by r.partition_key, r.priority desc, r.wake_at limit 1
        )
        union all
        (
            select n.priority, n.turn_at from perdure.lane as n
            where
                s.keyed = 1 and n.queue = $1::text and n.code = s.code
                and n.priority < s.priority and n.priority >= s.lowest
            order by n.priority desc, n.turn_at limit 1
        )
    ) as h (priority, head_at)
)

select priority, code, keyed, head_at from level
union all
select k.priority, k.code, k.keyed, h.head_at
from unnest(
    $6::text [], $7::text []::bigint [], $8::text []::bigint [], $9::text []::bigint []
) as k (code, keyed, priority, floor_at)
cross join lateral (
    (
        select r.wake_at from perdure.run as r
        where
            k.keyed = 0 and r.queue = $1::text and r.partition_key is null and r.code = k.code
            and r.priority = k.priority and r.wake_at >= k.floor_at
        order by r.partition_key, r.wake_at limit 1
    )
    union all
    (
        select n.turn_at from perdure.lane as n
        where
            k.keyed = 1 and n.queue = $1::text and n.code = k.code and n.priority = k.priority
            and n.turn_at >= k.floor_at
        order by n.turn_at limit 1
    )
) as h (head_at)
union all
select null, null, 0, null where exists (select 1 from perdure.worker where state <> 'live')
union all
select null, null, 2, (extract(epoch from clock_timestamp() - statement_timestamp()) * 1000000)::bigint
order by 1 desc nulls last

-- due_plain: the runs without a key of a code and priority that nobody else is claiming, longest due first; see `levels`
-- for the order
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from perdure.run
where
    queue = $1::text and partition_key is null and code = $2::text
    and priority = $3::bigint and wake_at is not null and wake_at <= $4::bigint
    and (wake_at, no) > ($5::bigint, $6::bigint)
order by partition_key, wake_at, no
limit $7::bigint
for no key update skip locked

-- due_keyed: the same of one key
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from perdure.run
where
    queue = $1::text and partition_key = $2::text and code = $3::text
    and priority = $4::bigint and wake_at is not null and wake_at <= $5::bigint
    and (wake_at, no) > ($6::bigint, $7::bigint)
order by wake_at, no
limit $8::bigint
for no key update skip locked

-- lanes: the keys whose turn has come, from a place on, each with its first run if that is due and nobody's
-- The run is found by its id, and all that makes it claimable is said of its row again: when somebody else has claimed it
-- meanwhile, only that is looked at anew once the row is locked.
select
    n.turn_at, n.partition_key, h.*
from perdure.lane as n
left join lateral (
    select
        r.no, r.id, r.workflow, r.workflow_version, r.status, r.queue, r.priority, r.wake_at, r.owner, r.epoch, r.inbox_n,
        r.deadline_at, r.input_digest, r.tags, r.detail, r.created_at, r.updated_at, r.partition_key, r.version_id
    from perdure.run as r
    where r.id = (
        select f.id from perdure.run as f
        where
            f.queue = $1::text and f.partition_key = n.partition_key and f.code = $2::text
            and f.priority = $3::bigint and f.wake_at is not null and f.wake_at <= $4::bigint
        order by f.wake_at, f.no
        limit 1
    )
    and r.queue = $1::text and r.partition_key = n.partition_key and r.code = $2::text
    and r.priority = $3::bigint and r.wake_at is not null and r.wake_at <= $4::bigint
    for no key update skip locked
) as h on true
where
    n.queue = $1::text and n.code = $2::text and n.priority = $3::bigint and n.turn_at <= $4::bigint
    and (n.turn_at, n.partition_key) > ($5::bigint, $6::text)
order by n.turn_at, n.partition_key
limit $7::bigint

-- turn_lane: note a key's turn, or when the first of its runs is due; forget it if nothing waits
select perdure.turn_lane($1::text, $2::text, $3::text, $4::bigint, $5::bigint)

-- bereft: runs of a queue whose owner is gone; looked for by their owner, so that nothing else is read
select h.*
from perdure.worker as w
cross join lateral (
    select
        r.no, r.id, r.workflow, r.workflow_version, r.status, r.queue, r.priority, r.wake_at, r.owner, r.epoch, r.inbox_n,
        r.deadline_at, r.input_digest, r.tags, r.detail, r.created_at, r.updated_at, r.partition_key, r.version_id
    from perdure.run as r
    where r.owner = w.id and r.queue = $1::text and r.code = any($2::text [])
    for no key update skip locked
) as h
where w.state <> 'live'
order by case when $3::bigint is null then -h.priority else h.updated_at - h.priority * $3::bigint end, h.no

-- stranded: runs of a queue whose owner is gone since before a time
select h.*
from perdure.worker as w
cross join lateral (
    select
        r.no, r.id, r.workflow, r.workflow_version, r.status, r.queue, r.priority, r.wake_at, r.owner, r.epoch, r.inbox_n,
        r.deadline_at, r.input_digest, r.tags, r.detail, r.created_at, r.updated_at, r.partition_key, r.version_id
    from perdure.run as r
    where r.owner = w.id and r.queue = $1::text
    for no key update skip locked
) as h
where w.state <> 'live' and w.expires_at <= $2::bigint
order by h.no

-- numbered: one run with its number if it is to wake up, unless somebody else is claiming it
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from perdure.run
where id = $1::text and wake_at is not null
for no key update skip locked

-- only: one run that is due or owned, unless somebody else is claiming it
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from perdure.run
where id = ? and (owner is not null or wake_at <= (select perdure.clock()))
for no key update skip locked

-- queues_of: the settings of these queues
select
    name, concurrency, concurrency_per_worker, concurrency_per_key, rate_limit, rate_us, ageing_us, fair,
    hold_while_waiting, paused, declared, changed_at, changes
from perdure.queue
where name = any(?::text [])

-- lock_queues: those of these queues that count their claims and nobody else is claiming from
select name from perdure.queue where name = any(?::text []) and counted order by name for no key update skip locked

-- get_queue: the settings of a queue, which stay so until the transaction ends
select
    name, concurrency, concurrency_per_worker, concurrency_per_key, rate_limit, rate_us, ageing_us, fair,
    hold_while_waiting, paused, declared, changed_at, changes
from perdure.queue
where name = ?
for no key update

-- make_queue: a queue without settings, if it has none
insert into perdure.queue (name, fair, hold_while_waiting, paused, changed_at, changes) values (?, 0, 0, 0, 0, 0)
on conflict do nothing

-- put_queue: the settings of a queue, new or changed
insert into perdure.queue (
    name, concurrency, concurrency_per_worker, concurrency_per_key, rate_limit, rate_us, ageing_us, fair,
    hold_while_waiting, paused, declared, changed_at, changes
)
values (
    $1::text, $2::bigint, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint, $8::bigint, $9::bigint,
    $10::bigint, $11::text, $12::bigint, $13::bigint
)
on conflict (name) do update set
    concurrency = excluded.concurrency,
    concurrency_per_worker = excluded.concurrency_per_worker,
    concurrency_per_key = excluded.concurrency_per_key,
    rate_limit = excluded.rate_limit,
    rate_us = excluded.rate_us,
    ageing_us = excluded.ageing_us,
    fair = excluded.fair,
    hold_while_waiting = excluded.hold_while_waiting,
    paused = excluded.paused,
    declared = excluded.declared,
    changed_at = excluded.changed_at,
    changes = excluded.changes

-- insert_change: record a change of a queue
insert into perdure.queue_change (queue, n, at, actor, reason, commit_id, change) values (?, ?, ?, ?, ?, ?, ?)

-- changes: the last changes of a queue
select
    queue, n, at, actor, reason, commit_id, change
from perdure.queue_change where queue = ? order by n desc limit ?

-- slot_sums: how many places in a queue's limits count, of them the worker's, and how many there are, by key or in all
select
    case when $4::bigint = 1 then r.partition_key end,
    count(r.id),
    count(case when r.owner = $3::text then 1 end),
    count(*)
from perdure.slot as s
left join perdure.run as r on
    s.run_id = r.id and s.epoch = r.epoch
    and (r.status = 'running' or ($2::bigint = 1 and r.status = 'waiting'))
where s.queue = $1::text
group by 1

-- put_slot: give a run a place in its queue's limits
insert into perdure.slot (run_id, queue, epoch) values (?, ?, ?)
on conflict (run_id) do update set queue = excluded.queue, epoch = excluded.epoch

-- drop_slots: forget all places in a queue's limits that do not count any more
delete from perdure.slot as s
where
    s.queue = $1::text
    and not exists (
        select 1 from perdure.run as r
        where
            r.id = s.run_id and r.epoch = s.epoch
            and (r.status = 'running' or ($2::bigint = 1 and r.status = 'waiting'))
    )

-- fill_slots: give a place to every run of a queue that is owned
insert into perdure.slot (run_id, queue, epoch)
select r.id, r.queue, r.epoch from perdure.run as r where r.owner is not null and r.queue = ?
on conflict (run_id) do update set queue = excluded.queue, epoch = excluded.epoch
where slot.epoch < excluded.epoch

-- count_start: count claims of a queue with a rate
insert into perdure.queue_start (queue, at, n) values (?, ?, ?)
on conflict (queue, at) do update set n = queue_start.n + excluded.n

-- take_key: give runs a deduplication key that no open run has
with taken as (
    insert into perdure.deduplication as d (queue, key, run_id)
    select * from unnest($1::text [], $2::text [], $3::text [])
    on conflict (queue, key) do update set run_id = excluded.run_id where not perdure.is_open(d.run_id)
    returning 1
)

select perdure.fits((select count(*) from taken) = cardinality($1::text []))

-- key_holder: the open run that has a deduplication key
select r.id from perdure.deduplication as d
inner join perdure.run as r on d.run_id = r.id
where d.queue = ? and d.key = ? and r.status in ('pending', 'running', 'waiting', 'paused', 'parked')

-- purge_key: delete a purged run's deduplication key
delete from perdure.deduplication where run_id = $1::text

-- purge_slot: delete a purged run's place
delete from perdure.slot where run_id = $1::text

-- standing: how many runs of every queue have a wake-up time
select queue, count(*) from perdure.run where wake_at is not null group by queue

-- owned_of: how many runs of every queue are owned
select queue, count(*) from perdure.run where owner is not null group by queue

-- by_status: runs in one state; conditions and order follow
select
    id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from perdure.run
where status = ?

-- by_tag: runs with a tag; conditions and order follow
select
    id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from perdure.tag
inner join perdure.run on tag.run_id = run.id
where tag.key = ? and tag.value = ?

-- and_tag: condition: another tag
and exists (select 1 from perdure.tag as o where o.key = ? and o.value = ? and o.run_id = run.id)

-- and_version_ids: condition: bound to one of some versions
and version_id = any((?::text [])::bigint [])

-- waiting: what is due, by queue and code
select queue, code, count(*), min(wake_at) from perdure.run
where wake_at <= (select perdure.clock())
group by queue, code
order by queue, code

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
    current_setting('synchronous_standby_names'), current_setting('data_sync_retry', true),
    (select a.backend_start::text from pg_catalog.pg_stat_activity as a where a.pid = pg_backend_pid())

-- end_session: end the process that served a connection, and wait for that; a new one may have its number by now
select pg_terminate_backend(pid, 5000) from pg_catalog.pg_stat_activity where pid = ? and backend_start::text = ?

-- sees: whether somebody holds a lock of this database
select not pg_try_advisory_xact_lock(?)

-- unlimited: let this transaction take its time, but wait for no lock for long: everybody would wait behind it
select
    set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true),
    set_config('lock_timeout', '2000', true)

-- hint: tell other processes that something has changed; it need not outlive a crash
select set_config('synchronous_commit', 'off', true), pg_notify(?, ?)

-- live_workers: workers whose lease has not ended
select name from perdure.worker where state = 'live' and expires_at > (select perdure.clock()) order by name

-- rights: what the role lacks; some tables are never changed, only added to
select c.relname::text, p.name
from pg_catalog.pg_class as c
inner join pg_catalog.pg_namespace as n on c.relnamespace = n.oid
cross join (values ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) as p (name)
where
    n.nspname = ? and c.relkind = 'r'
    and not has_table_privilege(c.oid, p.name)
    and (c.relname::text, p.name) not in (
        ('event', 'UPDATE'), ('request', 'UPDATE'), ('request', 'DELETE'), ('queue_change', 'UPDATE'),
        ('queue_change', 'DELETE'), ('schema_migration', 'INSERT'), ('schema_migration', 'UPDATE'),
        ('schema_migration', 'DELETE'), ('definition_version', 'DELETE'), ('definition_blob', 'UPDATE')
    )
    and not (
        p.name in ('UPDATE', 'DELETE')
        and c.relname in (
            'version_label', 'version_signature', 'definition_alias', 'version_change', 'route', 'release_tree'
        )
    )
order by 1, 2

-- tables: size, live and dead rows of our tables
select
    relname::text, pg_total_relation_size(relid), coalesce(n_live_tup, 0), coalesce(n_dead_tup, 0)
from pg_catalog.pg_stat_user_tables
where schemaname = ?
order by relname

-- horizon: how long somebody has held a snapshot, and who
select
    coalesce(extract(epoch from max(h.age))::bigint, 0),
    coalesce((array_agg(h.who order by h.age desc))[1], '')
from (
    select now() - a.xact_start as age, 'session ' || a.pid as who
    from pg_catalog.pg_stat_activity as a
    where a.backend_xmin is not null and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'
    union all
    select now() - x.prepared, 'prepared transaction ' || x.gid from pg_catalog.pg_prepared_xacts as x
) as h

-- ages: how far the ids of transactions have come since they were last frozen, and where: all databases share them
select a.ids, a.mxids, a.datname
from (
    select datname, age(datfrozenxid)::bigint as ids, mxid_age(datminmxid)::bigint as mxids
    from pg_catalog.pg_database
) as a
order by greatest(a.ids, a.mxids) desc, a.datname
limit 1

-- room: connections in use, and how many there can be
select
    (select count(*) from pg_catalog.pg_stat_activity where backend_type = 'client backend'),
    current_setting('max_connections')::bigint

-- seal: a few bytes for the server's own log, so that the commit has something to wait for
select pg_logical_emit_message(true, 'perdure', '')
