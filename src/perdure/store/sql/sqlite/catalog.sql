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

-- bereft_codes: the codes of runs whose worker is gone, and since when the first is
select r.code, min(r.updated_at) from run as r
where
    r.status = 'running' and r.owner in (select w.id from worker as w where w.state <> 'live')
    and r.queue in (select value from json_each(?1))
group by r.code
