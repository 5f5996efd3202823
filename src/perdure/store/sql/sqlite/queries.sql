-- The statements that are the SQLite backend's own. Parameters are in order unless numbered.

-- insert_event: add rows to a log; the rows' placeholders follow
insert into event_log (
    run_no, seq, type, op, kind, name, attempt, at, epoch, commit_id, state, digest, detail, input, payload, chain
) values

-- count_event: how many of these places are taken; the places' placeholders follow
select count(*) from event_log where (run_no, seq) in (values

-- event_row: one row of insert_event
(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- event_place: one place of count_event
(?, ?)

-- numbers: under which number the log of each of these runs is stored
select id, no from run where id in (select value from json_each(?))

-- last_number: the highest number of a run
select coalesce(max(no), 0) from run

-- insert_run: create runs; the rows' placeholders follow
insert into run (
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
) values

-- run_row: one row of insert_run
(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- bind_run: bind a run that is bound to no version
update run set version_id = ?2, workflow_version = ?3 where id = ?1 and version_id = 0

-- add_upgrade: record a change of a run's version
insert into run_upgrade (run_id, new_epoch, from_version, to_version, plan_id, forced, actor, reason, at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- rebind_run: bind a run to another version; only with its record
update run set version_id = ?2, workflow_version = ?3 where id = ?1

-- insert_tag: make a run findable by its tag
insert into tag (key, value, run_id) values (?, ?, ?)

-- change_run: compare-and-set on state and epoch; a message that came in meanwhile makes an unowned run due
with change (status, epoch, owner, wakes, inbox_seen, wake_at, now, detail, at, run_id, before, epoch_before) as (values

-- change_row: one row of change_run
(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- change_end: what follows the rows of change_run; no run may be in them twice
)
update run
set
    status = c.status,
    epoch = c.epoch,
    owner = c.owner,
    wake_at = case when c.wakes and inbox_n > c.inbox_seen then min(coalesce(c.wake_at, c.now), c.now) else c.wake_at end,
    detail = c.detail,
    updated_at = c.at
from change as c
where run.id = c.run_id and run.status = c.before and run.epoch = c.epoch_before

-- take_message: consume one message
delete from inbox where run_id = ? and n = ?

-- send: number a message and make an unowned run due
update run
set
    inbox_n = inbox_n + 1,
    wake_at = case when status in ('pending', 'waiting') then min(coalesce(wake_at, ?2), ?2) else wake_at end
where id = ?1 and status in ('pending', 'running', 'waiting', 'paused', 'parked')
returning inbox_n

-- insert_message: put a message into the inbox
insert into inbox (run_id, n, kind, sent_at, detail) values (?, ?, ?, ?, ?)

-- insert_request: leave a tombstone, which also opens the log for deletion
insert into request (run_id, workflow, input_digest, status, purged_at, actor, reason)
select id, workflow, input_digest, status, ?2, ?3, ?4
from run
where id = ?1

-- purge_event: delete a purged run's log
delete from event_log where run_no = (select no from run where id = ?)

-- purge_inbox: delete a purged run's messages
delete from inbox where run_id = ?

-- purge_tag: delete a purged run's tags, found by its own list of them
delete from tag
where (key, value, run_id) in (
    select j.key, j.value, r.id from run as r, json_each(r.tags) as j where r.id = ?
)

-- purge_run: delete a purged run's row
delete from run where id = ?

-- taken: which of these ids belong to a run or to what a purged one left
select id from run where id in (select value from json_each(?1))
union all
select run_id from request where run_id in (select value from json_each(?1))

-- tails: state, epoch and last seq of these runs
select r.id, r.status, r.epoch, (select max(e.seq) from event_log as e where e.run_no = r.no)
from json_each(?) as j
inner join run as r on r.id = j.value

-- status_of: state of one run
select status from run where id = ?

-- load_tails: the ends of several logs, each in order
with log (run_id, top) as (
    select j.value, (select max(e.seq) from event as e where e.run_id = j.value) from json_each(?) as j
)
select
    event.run_id, event.seq, event.type, event.op, event.kind, event.name, event.attempt, event.at, event.epoch,
    event.commit_id, event.state, event.digest, event.detail, event.input, event.payload, event.chain
from log join event on event.run_id = log.run_id and event.seq > log.top - ?
order by event.run_id, event.seq

-- meta: what all processes agree on; read in every write transaction
select boot_id, clock_base, queue_version from meta where id = 1

-- insert_meta: the first opening of a file
insert into meta (id, file_id, boot_id, clock_base, last_at) values (1, ?, ?, ?, ?)

-- rebase: set the common clock
update meta set boot_id = ?, clock_base = ?, last_at = ? where id = 1

-- last_at: the latest time known to be recorded
select max(
    coalesce((select last_at from meta where id = 1), 0),
    coalesce((select max(heartbeat_at) from worker), 0),
    coalesce((
        select max(s.at) from (
            select (select max(r.created_at) from run as r where r.status = j.value) as at from json_each(?) as j
        ) as s
    ), 0)
)

-- note_time: remember the time, so that the clock does not go back behind it
update meta set last_at = max(last_at, ?) where id = 1

-- live_worker: live workers with a lease beyond a time
select name, host, expires_at from worker where state = 'live' and expires_at > ?

-- bury_all: no worker of an earlier boot is alive
update worker set state = 'dead' where state = 'live'

-- insert_worker: a worker begins its life; done twice if the answer was lost
insert into worker (
    id, name, host, pid, state, started_at, heartbeat_at, expires_at, queues, workflows, versions, parent
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (id) do nothing

-- heartbeat: extend a live worker's lease, never an upsert
update worker set heartbeat_at = ?2, expires_at = ?2 + ?3 where id = ?1 and state = 'live'

-- leave: end a worker's life
update worker set heartbeat_at = ?2, expires_at = ?2, state = 'left' where id = ?1 and state = 'live'

-- owned: what a worker owns
select id, epoch, inbox_n from run where status = 'running' and owner = ?

-- sweep_due: whether a sweep would change anything
select
    exists (select 1 from worker where state <> 'live' or expires_at <= ?)
    or exists (select 1 from run where status = 'running' and owner not in (select id from worker))

-- bury: mark workers whose lease has ended
update worker set state = 'dead' where state = 'live' and expires_at <= ? returning id

-- orphans: owners without a row
select distinct owner from run where status = 'running' and owner not in (select id from worker)

-- forget: remove rows of workers that are gone and own nothing
delete from worker
where state <> 'live' and id not in (select owner from run where status = 'running')

-- gone: whether there are workers to take over from
select 1 from worker where state <> 'live' limit 1

-- levels: every priority of a queue with a time to wake up, and the first such time, by skipping through the indexes
with recursive level (code, keyed, priority) as (
    select
        w.value,
        0,
        (
            select max(r.priority) from run as r
            where r.queue = ?1 and r.partition_key is null and r.code = w.value and r.wake_at is not null
        )
    from json_each(?2) as w
    union all
    select
        w.value,
        1,
        (select max(n.priority) from lane as n where n.queue = ?1 and n.code = w.value)
    from json_each(?2) as w
    union all
    select
        s.code,
        s.keyed,
        case when s.keyed
            then (
                select max(n.priority) from lane as n
                where n.queue = ?1 and n.code = s.code and n.priority < s.priority
            )
            else (
                select max(r.priority) from run as r
                where
                    r.queue = ?1 and r.partition_key is null and r.code = s.code and r.priority < s.priority
                    and r.wake_at is not null
            )
        end
    from level as s
    where s.priority is not null
),

headed (priority, code, keyed, head_at) as (
    select
        s.priority,
        s.code,
        s.keyed,
        case when s.keyed
            then (
                select min(n.turn_at) from lane as n
                where n.queue = ?1 and n.code = s.code and n.priority = s.priority
            )
            else (
                select min(r.wake_at) from run as r
                where
                    r.queue = ?1 and r.partition_key is null and r.code = s.code and r.priority = s.priority
                    and r.wake_at is not null
            )
        end
    from level as s
    where s.priority is not null
)

select priority, code, keyed, head_at from headed where head_at is not null order by priority desc

-- due_plain: the runs without a key of a code and priority, longest due first
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from run
where
    queue = ? and partition_key is null and code = ? and priority = ? and wake_at is not null and wake_at <= ?
    and (wake_at, no) > (?, ?)
order by wake_at, no
limit ?

-- due_keyed: the same of one key
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from run
where
    queue = ? and partition_key = ? and code = ? and priority = ? and wake_at is not null and wake_at <= ?
    and (wake_at, no) > (?, ?)
order by wake_at, no
limit ?

-- lanes: the keys whose turn has come, from a place on, each with its first run if that is due
select
    n.turn_at, n.partition_key,
    r.no, r.id, r.workflow, r.workflow_version, r.status, r.queue, r.priority, r.wake_at, r.owner, r.epoch, r.inbox_n,
    r.deadline_at, r.input_digest, r.tags, r.detail, r.created_at, r.updated_at, r.partition_key, r.version_id
from lane as n
left join run as r on r.no = (
    select h.no from run as h
    where
        h.queue = ?1 and h.partition_key = n.partition_key and h.code = ?2 and h.priority = ?3
        and h.wake_at is not null and h.wake_at <= ?4
    order by h.wake_at, h.no
    limit 1
)
where n.queue = ?1 and n.code = ?2 and n.priority = ?3 and n.turn_at <= ?4 and (n.turn_at, n.partition_key) > (?5, ?6)
order by n.turn_at, n.partition_key
limit ?7

-- turn_lane: note a key's turn, or when the first of its runs is due
update lane
set
    turn_at = max(?5, coalesce((
        select min(r.wake_at) from run as r
        where r.queue = ?1 and r.partition_key = ?2 and r.code = ?3 and r.priority = ?4 and r.wake_at is not null
    ), ?5))
where queue = ?1 and partition_key = ?2 and code = ?3 and priority = ?4

-- drop_lane: forget a key of which nothing waits
delete from lane
where
    queue = ?1 and partition_key = ?2 and code = ?3 and priority = ?4
    and not exists (
        select 1 from run as r
        where r.queue = ?1 and r.partition_key = ?2 and r.code = ?3 and r.priority = ?4 and r.wake_at is not null
    )

-- bereft: runs of a queue whose owner is gone
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from run
where
    status = 'running'
    and owner in (select id from worker where state <> 'live')
    and queue = ?1
    and code in (select value from json_each(?2))
order by case when ?3 is null then -priority else updated_at - priority * ?3 end, no

-- stranded: runs of a queue whose owner is gone since before a time
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from run
where
    status = 'running' and queue = ?1
    and owner in (select id from worker where state <> 'live' and expires_at <= ?2)
order by no

-- numbered: one run with its number
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from run where id = ?

-- queue_version: grows with every change of a queue
select queue_version from meta where id = 1

-- get_queue: the settings of a queue
select
    name, concurrency, concurrency_per_worker, concurrency_per_key, rate_limit, rate_us, ageing_us, fair,
    hold_while_waiting, paused, declared, changed_at, changes
from queue where name = ?

-- put_queue: the settings of a queue, new or changed
insert or replace into queue values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- insert_change: record a change of a queue
insert into queue_change (queue, n, at, actor, reason, commit_id, change) values (?, ?, ?, ?, ?, ?, ?)

-- changes: the last changes of a queue
select
    queue, n, at, actor, reason, commit_id, change
from queue_change where queue = ? order by n desc limit ?

-- bump_queues: let everybody read the queues anew
update meta set queue_version = queue_version + 1 where id = 1

-- slot_sums: how many places in a queue's limits count, of them the worker's, and how many there are, by key or in all
select
    case when ?4 = 1 then r.partition_key end,
    count(r.id),
    count(case when r.owner = ?3 then 1 end),
    count(*)
from slot as s
left join run as r on
    s.run_id = r.id and s.epoch = r.epoch
    and (r.status = 'running' or (?2 = 1 and r.status = 'waiting'))
where s.queue = ?1
group by 1

-- put_slot: give a run a place in its queue's limits
insert or replace into slot (run_id, queue, epoch) values (?, ?, ?)

-- drop_slots: forget all places in a queue's limits that do not count any more; ?2: a run that waits keeps its own
delete from slot
where
    queue = ?1
    and not exists (
        select 1 from run as r
        where r.id = slot.run_id and r.epoch = slot.epoch and (r.status = 'running' or (?2 and r.status = 'waiting'))
    )

-- fill_slots: give a place to every run of a queue that is owned
insert or replace into slot (run_id, queue, epoch) select id, queue, epoch from run where status = 'running' and queue = ?

-- count_start: count claims of a queue with a rate
insert into queue_start (queue, at, n) values (?, ?, ?) on conflict do update set n = n + excluded.n

-- take_key: give a run a deduplication key that no open run has
insert into deduplication (queue, key, run_id) values (?, ?, ?)
on conflict (queue, key) do update set run_id = excluded.run_id
where not exists (
    select 1 from run as r
    where r.id = deduplication.run_id and r.status in ('pending', 'running', 'waiting', 'paused', 'parked')
)

-- key_holder: the open run that has a deduplication key
select r.id from deduplication as d
inner join run as r on d.run_id = r.id
where d.queue = ? and d.key = ? and r.status in ('pending', 'running', 'waiting', 'paused', 'parked')

-- purge_key: delete a purged run's deduplication key
delete from deduplication where run_id = ?

-- purge_slot: delete a purged run's place
delete from slot where run_id = ?

-- by_status: runs in one state; conditions and order follow
select
    id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from run indexed by run_listing
where status = ?

-- by_tag: runs with a tag; conditions and order follow
select
    id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from tag
cross join run on run.id = tag.run_id
where tag.key = ? and tag.value = ?

-- and_tag: condition: another tag
and exists (select 1 from tag as o where o.key = ? and o.value = ? and o.run_id = run.id)

-- and_version_ids: condition: bound to one of some versions
and version_id in (select cast(value as integer) from json_each(?))

-- pairs: every queue and code with a run without a key that has a wake-up time, by skipping through the index
with recursive line (queue) as (
    select min(queue) from run where wake_at is not null
    union all
    select (select min(r.queue) from run as r where r.queue > l.queue and r.wake_at is not null)
    from line as l
    where l.queue is not null
),

pair (queue, code) as (
    select
        l.queue,
        (
            select min(r.code) from run as r
            where r.queue = l.queue and r.partition_key is null and r.wake_at is not null
        )
    from line as l
    where l.queue is not null
    union all
    select
        p.queue,
        (
            select min(r.code) from run as r
            where
                r.queue = p.queue and r.partition_key is null and r.code > p.code
                and r.wake_at is not null
        )
    from pair as p
    where p.code is not null
)

select queue, code from pair where code is not null

-- count_due: how much of a line is due, and since when
select count(*), min(wake_at) from run
where
    queue = ? and partition_key is null and code = ? and priority = ? and wake_at is not null and wake_at <= ?

-- keyed_due: how much is due that has a key, and since when, by queue and code
select n.queue, n.code, count(*), min(r.wake_at)
from lane as n
cross join run as r on
    n.queue = r.queue and n.partition_key = r.partition_key and n.code = r.code and n.priority = r.priority
    and r.wake_at is not null and r.wake_at <= ?1
where n.turn_at <= ?1
group by n.queue, n.code

-- standing: how many runs of every queue have a wake-up time
select queue, count(*) from run where wake_at is not null group by queue

-- owned_of: how many runs of every queue are owned
select queue, count(*) from run where status = 'running' group by queue

-- data_version: changes when another connection commits
pragma data_version

-- tables: what tables there are
select name from sqlite_schema where type in ('table', 'view')
