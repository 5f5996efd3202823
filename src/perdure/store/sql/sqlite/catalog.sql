-- The statements about versions that are this backend's own. A list of texts is a JSON array.

-- lock_catalog: whoever changes anything of versions waits here for the one before
select version_count from meta where id = 1

-- add_blob: a content, unless it is there
insert into definition_blob (sha256, codec, raw_size, data, canonical, scan, created_at)
values (?, ?, ?, ?, ?, ?, ?)
on conflict do nothing

-- next_code: the first code behind another that runs of a queue wait with
select min(f.code) from (
    select min(r.code) as code from run as r
    where r.queue = ?1 and r.partition_key is null and r.code > ?2 and r.wake_at is not null
    union all
    select min(n.code) as code from lane as n where n.queue = ?1 and n.code > ?2
) as f

-- demand: what runs need code for: (what, code or versions, since when, whose)
select 'bereft', r.code, min(r.updated_at), null from run as r
where
    r.status = 'running' and r.owner in (select w.id from worker as w where w.state <> 'live')
    and r.queue in (select value from json_each(?1))
group by r.code
union all
select distinct 'parked', r.code, null, null from run as r
where r.status = 'parked' and r.queue in (select value from json_each(?1)) and r.detail like ?2
union all
select 'carried', w.versions, null, w.parent from worker as w where w.state = 'live'
union all
select
    'waits',
    (
        select min(f.code) from (
            select min(r.code) as code from run as r
            where r.queue = q.value and r.partition_key is null and r.code > '' and r.wake_at is not null
            union all
            select min(n.code) as code from lane as n where n.queue = q.value and n.code > ''
        ) as f
    ),
    null, q.value
from json_each(?1) as q
