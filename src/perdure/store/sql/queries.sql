-- The statements that every backend runs, but for those about versions. `perdure.` stands for what its tables are named
-- with, and `in (?)` for its way to look in a list of texts. What each has to say in its own way is in its own file.

-- version_count: grows with every change of versions, labels and routes
select version_count from perdure.meta where id = 1

-- commit_at: who wrote a place of a log
select commit_id from perdure.event where run_id = ? and seq = ?

-- going_on: those of some runs that are neither ended nor parked
select id from perdure.run
where id in (?) and status in ('pending', 'running', 'waiting', 'paused')

-- get_run: one run
select
    id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from perdure.run where id = ?

-- get_request: what a purged run left
select
    run_id, workflow, input_digest, status, purged_at, actor, reason
from perdure.request where run_id = ?

-- load: a log from a place on
select
    run_id, seq, type, op, kind, name, attempt, at, epoch, commit_id, state, digest, detail, input, payload, chain
from perdure.event where run_id = ? and seq >= ? order by seq limit ?

-- load_tail: the end of a log, backwards
select
    run_id, seq, type, op, kind, name, attempt, at, epoch, commit_id, state, digest, detail, input, payload, chain
from perdure.event where run_id = ? order by seq desc limit ?

-- inbox: waiting messages
select
    run_id, n, kind, sent_at, detail
from perdure.inbox where run_id = ? order by n

-- is_gone: whether a worker's runs may be taken over
select 1 from perdure.worker where id = ? and state <> 'live'

-- is_live: whether a worker may claim
select 1 from perdure.worker where id = ? and state = 'live'

-- queues: the settings of all queues
select
    name, concurrency, concurrency_per_worker, concurrency_per_key, rate_limit, rate_us, ageing_us, fair,
    hold_while_waiting, paused, declared, changed_at, changes
from perdure.queue

-- change_by: whether a change was recorded before
select 1 from perdure.queue_change where queue = ? and commit_id = ?

-- returning: runs of a queue that kept their places while they waited, and are due
select s.run_id from perdure.slot as s
inner join perdure.run as r on s.run_id = r.id and s.epoch = r.epoch
where s.queue = ? and r.status = 'waiting' and r.wake_at <= ?

-- has_slot: whether a run has a place in its queue's limits for an epoch
select 1 from perdure.slot where run_id = ? and epoch = ?

-- starts: claims of a queue in the window of its rate
select at, n from perdure.queue_start where queue = ? and at > ? order by at

-- forget_starts: drop what has left the window
delete from perdure.queue_start where queue = ? and at <= ?

-- and_status: condition: one of some states
and status in (?)

-- and_workflow: condition: of this workflow
and workflow = ?

-- and_version: condition: bound by this label
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

-- workers: known workers
select
    id, name, host, pid, state, started_at, heartbeat_at, expires_at, queues, workflows, versions, parent
from perdure.worker order by id

-- migrations: what was applied
select number, name, checksum from perdure.schema_migration order by number
