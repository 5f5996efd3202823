-- The statements that are the MySQL and MariaDB backend's own. A question mark stands for a value, with a number behind it for
-- the value of that number; for a list of texts it stands for all of them with commas between, and `rows(?)` for a table of one column `value`.
-- `timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))` is the server's clock when the statement began.

-- begin: begin a transaction
start transaction

-- short: a client that now falls silent for so many seconds is put out, and its locks with it
set wait_timeout = 5

-- commit: end a transaction
commit

-- rollback: undo a transaction
rollback

-- long: between transactions a connection may rest for a day; and see `patient`
set wait_timeout = 86400, innodb_lock_wait_timeout = 1

-- hurry: wait for no lock; on MySQL, which knows no less, for a second
set innodb_lock_wait_timeout = 0

-- patient: wait a second for a lock
set innodb_lock_wait_timeout = 1

-- clock: the time of the server
select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))

-- insert_event: add rows to logs; the rows follow
insert into event (
    run_id, seq, type, op, kind, name, attempt, at, epoch, commit_id, state, digest, detail, input, payload, chain
) values

-- check_places: these places of logs must be taken; the places and their number follow
insert into refusal select reason from refusal
where reason = 'the batch does not fit' and (select count(*) from event where (run_id, seq) in (

-- check_places_end: what follows the places
)) <>

-- insert_run: create runs; the rows follow
insert into run (
    id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id, due_queue
) values

-- check_free: none of these ids may have been purged; asked after the insert, which waits for a purge under way
insert into refusal select reason from refusal
where reason = 'the batch does not fit' and exists (select 1 from request where run_id in (?))

-- check_count: the statement before must have found so many rows
insert into refusal select reason from refusal where reason = 'the batch does not fit' and row_count() <> ?

-- check_versions: nothing of versions, labels and routes may have changed since
insert into refusal select reason from refusal
where reason = 'the batch does not fit' and (select version_count from meta where id = 1) <> ?

-- bind_run: bind a run that is bound to no version
update run set version_id = ?2, workflow_version = ?3 where id = ?1 and version_id = 0

-- add_upgrade: record a change of a run's version
insert into run_upgrade (run_id, new_epoch, from_version, to_version, plan_id, forced, actor, reason, at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- rebind_run: bind a run to another version; only with its record
update run set version_id = ?2, workflow_version = ?3 where id = ?1

-- insert_tag: make runs findable by their tags; the rows follow
insert into tag (`key`, value, run_no) values

-- tag_row: one row of insert_tag
(?, ?, (select no from run where id = ?))

-- change_run: compare-and-set on state and epoch, of runs that become alike; the first value is what sets the wake-up time
update run force index (run_id_uq)
set ?, status = ?, epoch = ?, owner = ?, detail = ?, updated_at = ?
where id in (?) and status = ? and epoch = ?

-- change_wake: a message that came in meanwhile makes an unowned run due
wake_at = case
    when inbox_n > ? then least(
        coalesce(?, timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))),
        timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
    )
    else ?
end,
due_queue = case when wake_at is null then null else queue end

-- take_message: consume messages; the keys follow
delete from inbox where (run_id, n) in (

-- send: number a message, and make an unowned run due
update run
set
    inbox_n = inbox_n + 1,
    wake_at = case
        when status in ('pending', 'waiting') then least(
            coalesce(wake_at, timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))),
            timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
        )
        else wake_at
    end,
    due_queue = case when wake_at is null then null else queue end
where id = ? and status in ('pending', 'running', 'waiting', 'paused', 'parked')

-- insert_message: put the message into the inbox
insert into inbox (run_id, n, kind, sent_at, detail)
select id, inbox_n, ?, ?, ? from run
where id = ? and status in ('pending', 'running', 'waiting', 'paused', 'parked')

-- insert_request: leave a tombstone, which also opens the log for deletion
insert into request (run_id, workflow, input_digest, status, purged_at, actor, reason)
select id, workflow, input_digest, status, ?, ?, ? from run
where id = ? and status in ('completed', 'failed', 'cancelled', 'terminated', 'continued')
for update

-- purge_event: delete a purged run's log
delete from event where run_id = ?

-- purge_inbox: delete a purged run's messages
delete from inbox where run_id = ?

-- purge_tag: delete a purged run's tags
delete from tag where run_no = (select no from run where id = ?)

-- purge_run: delete a purged run's row
delete from run where id = ?

-- savepoint: what follows can be undone by itself
savepoint part

-- release: keep what was done since the savepoint
release savepoint part

-- undo: undo what was done since the savepoint
rollback to savepoint part

-- standings: state, epoch and last seq of these runs, which stay as they are until the transaction ends
select
    r.id, r.status, r.epoch,
    (select e.seq from event as e where e.run_id = r.id order by e.seq desc limit 1 lock in share mode)
from run as r
where r.id in (?)
order by r.id
for update

-- standings_free: the same, of those of these runs that nobody else holds; not in a `hurry`, with which MariaDB fails
select
    r.id, r.status, r.epoch,
    (select e.seq from event as e where e.run_id = r.id order by e.seq desc limit 1 lock in share mode)
from run as r force index (run_id_uq)
where r.id in (?)
order by r.id
for update skip locked

-- there: those of these runs that there are
select id from run where id in (?)

-- load_tails: the ends of several logs, each in order
select
    e.run_id, e.seq, e.type, e.op, e.kind, e.name, e.attempt, e.at, e.epoch, e.commit_id, e.state, e.digest,
    e.detail, e.input, e.payload, e.chain
from (select run_id, max(seq) as top from event where run_id in (?) group by run_id) as t
inner join event as e on e.run_id = t.run_id and e.seq > t.top - ?
order by e.run_id, e.seq

-- limit_claim: every transaction is limited already
do ?

-- insert_worker: a worker begins its life; done twice if the answer was lost
insert into worker (
    id, name, host, pid, state, started_at, heartbeat_at, expires_at, queues, workflows, versions, parent
)
select v.* from (
    select
        ? as id, ? as name, ? as host, ? as pid, ? as state, ? as started_at, ? as heartbeat_at, ? as expires_at,
        ? as queues, ? as workflows, ? as versions, ? as parent
) as v
where not exists (select 1 from worker as w where w.id = v.id)

-- heartbeat: extend a live worker's lease, never an upsert
update worker
set
    heartbeat_at = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)),
    expires_at = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) + ?
where id = ? and state = 'live'

-- leave: end a worker's life
update worker
set
    heartbeat_at = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)),
    expires_at = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)),
    state = 'left'
where id = ? and state = 'live'

-- owned: what a worker owns
select id, epoch, inbox_n from run where owner = ?

-- sweep_due: whether a sweep would change anything, when the next lease ends, and how many workers live
select
    exists (
        select 1 from worker
        where state <> 'live' or expires_at <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
    ) or exists (
        select 1 from run as r
        where r.owner is not null and not exists (select 1 from worker as w where w.id = r.owner)
    ),
    (select min(expires_at) from worker where state = 'live'),
    (select count(*) from worker where state = 'live')

-- expired: workers whose lease has ended
select id from worker
where state = 'live' and expires_at <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
order by id

-- bury: mark a worker whose lease has ended
update worker set state = 'dead'
where id = ? and state = 'live' and expires_at <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))

-- orphans: owners without a row
select distinct r.owner from run as r
where r.owner is not null and not exists (select 1 from worker as w where w.id = r.owner)

-- forget: remove rows of workers that are gone and own nothing
delete from worker
where state <> 'live' and not exists (select 1 from run as r where r.owner = worker.id)

-- gone: whether there are workers to take over from
(select ?, null, null from worker where state <> 'live' limit 1)

-- took: how long the statement has taken until here, in microseconds, and when it began
select ?, timestampdiff(microsecond, now(6), sysdate(6)), timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))

-- level_plain: the highest priority in a gap that runs without a key wait with, and the first time of them
select
    ?5, t.priority,
    (
        select r.wake_at from run as r
        where r.due_queue = ?1 and r.partition_key is null and r.code = ?2 and r.priority = t.priority
        order by r.wake_at limit 1
    )
from (
    select max(priority) as priority from run
    where due_queue = ?1 and partition_key is null and code = ?2 and priority <= ?3 and priority >= ?4
) as t
where t.priority is not null

-- level_keyed: the same of runs with a key
select
    ?5, t.priority,
    (
        select n.turn_at from lane as n
        where n.queue = ?1 and n.code = ?2 and n.priority = t.priority
        order by n.turn_at limit 1
    )
from (
    select max(priority) as priority from lane
    where queue = ?1 and code = ?2 and priority <= ?3 and priority >= ?4
) as t
where t.priority is not null

-- head_plain: the first time from one on that runs without a key of a priority wait for
(
    select ?5, priority, wake_at from run
    where due_queue = ?1 and partition_key is null and code = ?2 and priority = ?3 and wake_at >= ?4
    order by wake_at limit 1
)

-- head_keyed: the same of runs with a key
(
    select ?5, priority, turn_at from lane
    where queue = ?1 and code = ?2 and priority = ?3 and turn_at >= ?4
    order by turn_at limit 1
)

-- due_plain: the runs without a key of a code and priority that nobody else is claiming, longest due first
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from run force index (run_due)
where
    due_queue = ?1 and partition_key is null and code = ?2 and priority = ?3 and wake_at <= ?4
    and (wake_at > ?5 or (wake_at = ?5 and no > ?6))
order by wake_at, no
limit ?7
for update skip locked

-- due_keyed: the same of one key
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from run force index (run_due)
where
    due_queue = ?1 and partition_key = ?2 and code = ?3 and priority = ?4 and wake_at <= ?5
    and (wake_at > ?6 or (wake_at = ?6 and no > ?7))
order by wake_at, no
limit ?8
for update skip locked

-- lanes: the keys whose turn has come, from a place on
select turn_at, partition_key from lane
where
    queue = ?1 and code = ?2 and priority = ?3 and turn_at <= ?4
    and (turn_at > ?5 or (turn_at = ?5 and partition_key > ?6))
order by turn_at, partition_key
limit ?7

-- hold_lane: keep others from joining a line; the next statement sees who has
select 1 from lane where queue = ? and partition_key = ? and code = ? and priority = ? for update

-- turn_lane: note a key's turn, or when the first of its runs is due, or that nothing waits
-- An update reads other tables without locks. A delete would lock what it reads, which is what another claim has locked
-- that waits for this line.
update lane
set
    turn_at = coalesce(greatest(?5, (
        select r.wake_at from run as r
        where r.due_queue = ?1 and r.partition_key = ?2 and r.code = ?3 and r.priority = ?4
        order by r.wake_at limit 1
    )), -1)
where queue = ?1 and partition_key = ?2 and code = ?3 and priority = ?4

-- drop_lane: forget a key of which nothing waits
delete from lane where queue = ? and partition_key = ? and code = ? and priority = ? and turn_at = -1

-- bereft: runs of a queue whose owner is gone. From the owner to its runs, whatever the server would do: it believes
-- that an owner has as many runs as have none, and reads all of them as soon as there are a few workers
select straight_join
    r.no, r.id, r.workflow, r.workflow_version, r.status, r.queue, r.priority, r.wake_at, r.owner, r.epoch, r.inbox_n,
    r.deadline_at, r.input_digest, r.tags, r.detail, r.created_at, r.updated_at, r.partition_key, r.version_id
from (select distinct w.id from worker as w where w.state <> 'live') as gone
inner join run as r force index (run_owner) on gone.id = r.owner
where r.queue = ?1 and r.code in (?2)
order by case when ?3 is null then -r.priority else r.updated_at - r.priority * ?3 end, r.no
for update skip locked

-- stranded: runs of a queue whose owner is gone since before a time
select straight_join
    r.no, r.id, r.workflow, r.workflow_version, r.status, r.queue, r.priority, r.wake_at, r.owner, r.epoch, r.inbox_n,
    r.deadline_at, r.input_digest, r.tags, r.detail, r.created_at, r.updated_at, r.partition_key, r.version_id
from (select distinct w.id from worker as w where w.state <> 'live' and w.expires_at <= ?2) as gone
inner join run as r force index (run_owner) on gone.id = r.owner
where r.queue = ?1
order by r.no
for update skip locked

-- numbered: one run with its number if it is to wake up, unless somebody else is claiming it
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from run
where id = ? and wake_at is not null
for update skip locked

-- only: one run that is due or owned, unless somebody else is claiming it
select
    no, id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from run
where
    id = ?
    and (owner is not null or wake_at <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)))
for update skip locked

-- queues_of: the settings of these queues
select
    name, concurrency, concurrency_per_worker, concurrency_per_key, rate_limit, rate_us, ageing_us, fair,
    hold_while_waiting, paused, declared, changed_at, changes
from queue
where name in (?)

-- lock_queues: those of these queues that count their claims and nobody else is claiming from
select name from queue
where
    name in (?)
    and (
        concurrency is not null or concurrency_per_worker is not null or concurrency_per_key is not null
        or rate_limit is not null or fair = 1 or paused = 1
    )
order by name
for update skip locked

-- check_open: none of these queues may count its claims
insert into refusal select reason from refusal
where reason = 'the batch does not fit' and exists (
    select 1 from queue
    where name in (?) and (
        concurrency is not null or concurrency_per_worker is not null or concurrency_per_key is not null
        or rate_limit is not null or fair = 1 or paused = 1
    )
)

-- get_queue: the settings of a queue, which stay so until the transaction ends
select
    name, concurrency, concurrency_per_worker, concurrency_per_key, rate_limit, rate_us, ageing_us, fair,
    hold_while_waiting, paused, declared, changed_at, changes
from queue
where name = ?
for update

-- make_queue: a queue without settings, if it has none
insert ignore into queue (name, fair, hold_while_waiting, paused, changed_at, changes) values (?, 0, 0, 0, 0, 0)

-- put_queue: the settings of a queue, new or changed
replace into queue (
    name, concurrency, concurrency_per_worker, concurrency_per_key, rate_limit, rate_us, ageing_us, fair,
    hold_while_waiting, paused, declared, changed_at, changes
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- insert_change: record a change of a queue
insert into queue_change (queue, n, at, actor, reason, commit_id, `change`) values (?, ?, ?, ?, ?, ?, ?)

-- changes: the last changes of a queue
select
    queue, n, at, actor, reason, commit_id, `change`
from queue_change where queue = ? order by n desc limit ?

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
replace into slot (run_id, queue, epoch) values (?, ?, ?)

-- drop_slots: forget all places in a queue's limits that do not count any more
delete from slot
where
    queue = ?1
    and not exists (
        select 1 from run as r
        where
            r.id = slot.run_id and r.epoch = slot.epoch
            and (r.status = 'running' or (?2 = 1 and r.status = 'waiting'))
    )

-- fill_slots: give a place to every run of a queue that is owned
replace into slot (run_id, queue, epoch)
select r.id, r.queue, r.epoch from run as r where r.owner is not null and r.queue = ?

-- count_start: count claims of a queue with a rate
insert into queue_start (queue, at, n) values (?1, ?2, ?3) on duplicate key update n = n + ?3

-- free_key: take a deduplication key from a run that has ended
delete from deduplication
where
    queue = ? and `key` = ?
    and not exists (
        select 1 from run as r
        where
            r.id = deduplication.run_id and r.status in ('pending', 'running', 'waiting', 'paused', 'parked')
    )

-- take_key: give a run a deduplication key that no other has
insert into deduplication (queue, `key`, run_id) values (?, ?, ?)

-- key_holder: the open run that has a deduplication key
select r.id from deduplication as d
inner join run as r on d.run_id = r.id
where d.queue = ? and d.`key` = ? and r.status in ('pending', 'running', 'waiting', 'paused', 'parked')

-- purge_key: delete a purged run's deduplication key
delete from deduplication where run_id = ?

-- purge_slot: delete a purged run's place
delete from slot where run_id = ?

-- standing: how many runs of every queue have a wake-up time
select due_queue, count(*) from run where due_queue is not null group by due_queue

-- owned_of: how many runs of every queue are owned
select queue, count(*) from run where owner is not null group by queue

-- by_status: runs in one state; conditions and order follow
select
    id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from run
where status = ?

-- by_tag: runs with a tag; conditions and order follow
select
    id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
    input_digest, tags, detail, created_at, updated_at, partition_key, version_id
from tag
inner join run on tag.run_no = run.no
where tag.`key` = ? and tag.value = ?

-- and_tag: condition: another tag
and exists (select 1 from tag as o where o.`key` = ? and o.value = ? and o.run_no = run.no)

-- and_version_ids: condition: bound to one of some versions
and version_id in (?)

-- waiting: what is due, by queue and code
select due_queue, code, count(*), min(wake_at) from run
where due_queue is not null and wake_at <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
group by due_queue, code
order by due_queue, code

-- note_migration: remember what was applied
insert into schema_migration (number, name, checksum, applied_at)
values (?, ?, ?, timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)))

-- lock_schema: one migration at a time, until it is unlocked or the connection ends
select get_lock(concat('perdure ', md5(database())), ?)

-- unlock_schema: let others migrate
select release_lock(concat('perdure ', md5(database())))

-- our_tables: which of these names are tables of the database, and what keeps them
select table_name, engine, table_collation from information_schema.tables
where table_schema = database() and table_name in (?)

-- sizes: bytes of our tables: rows, indexes, free
select table_name, data_length, index_length, data_free from information_schema.tables
where table_schema = database() and table_name in (?)

-- variables: what the server and this session are set to
show variables where variable_name in (?)

-- status_of_server: counters of the server
show status where variable_name in (?)

-- rights: what the user was given
show grants

-- database: the name of this database
select database()

-- oldest: since when the oldest transaction is open, and how much undo waits; needs the right PROCESS
select
    (select timestampdiff(second, min(trx_started), now()) from information_schema.innodb_trx),
    (select count from information_schema.innodb_metrics where name = 'trx_rseg_history_len')

-- live_workers: workers whose lease has not ended
select name from worker
where state = 'live' and expires_at > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
order by name

-- patience: how many seconds a change of a table may wait for those who use it: everybody waits behind it
set session lock_wait_timeout = ?

-- sees: whether somebody holds a lock of this server
select is_used_lock(concat('perdure_', ?)) is not null

-- seal: a row that is gone again before the commit, so that the commit is one that a replica has to confirm
insert into refusal (reason) values (?)

-- unseal: take the row of `seal` away
delete from refusal where reason = ?
