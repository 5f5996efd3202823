-- The statements about versions that are this backend's own. For a list of texts a question mark stands
-- for all of them.

-- lock_catalog: whoever changes anything of versions waits here for the one before
select version_count from meta where id = 1 for update

-- add_blob: a content, unless it is there
insert into definition_blob (sha256, codec, raw_size, data, canonical, scan, created_at)
values (?, ?, ?, ?, ?, ?, ?)
on duplicate key update codec = codec

-- next_code: the first code behind another that runs of a queue wait with
select min(f.code) from (
    select min(r.code) as code from run as r
    where r.due_queue = ?1 and r.partition_key is null and r.code > ?2
    union all
    select min(n.code) as code from lane as n where n.queue = ?1 and n.code > ?2
) as f

-- demand: what runs need code for: (what, code or versions, since when, whose); `first_code` is put to it
(
    select straight_join
        'bereft', r.code, min(r.updated_at), null
    from worker as w
    inner join run as r force index (run_owner) on w.id = r.owner
    where w.state <> 'live' and r.queue in (?1)
    group by r.code
)
union all
select distinct 'parked', r.code, null, null
from run as r
where r.status = 'parked' and r.queue in (?1) and r.detail like ?2
union all
select 'carried', w.versions, null, w.parent from worker as w where w.state = 'live'

-- first_code: the first code that runs of a queue wait with
select 'waits', min(f.code), null, ?1 from (
    select min(r.code) as code from run as r
    where r.due_queue = ?1 and r.partition_key is null and r.code > ''
    union all
    select min(n.code) as code from lane as n where n.queue = ?1 and n.code > ''
) as f
