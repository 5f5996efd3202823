-- The statements about versions that are this backend's own. `perdure` stands for the schema's name; a list
-- of texts is an array.

-- lock_catalog: whoever changes anything of versions waits here for the one before
select version_count from perdure.meta where id = 1 for no key update

-- add_blob: a content, unless it is there
insert into perdure.definition_blob (sha256, codec, raw_size, data, canonical, scan, created_at)
values (?, ?, ?, ?, ?, ?, ?)
on conflict do nothing

-- next_code: the first code behind another that runs of a queue wait with
select min(f.code) from (
    select min(r.code) as code from perdure.run as r
    where r.queue = $1::text and r.partition_key is null and r.code > $2::text and r.wake_at is not null
    union all
    select min(n.code) as code from perdure.lane as n where n.queue = $1::text and n.code > $2::text
) as f

-- bereft_codes: the codes of runs whose worker is gone, and since when the first is
select r.code, min(r.updated_at) from perdure.run as r
inner join perdure.worker as w on r.owner = w.id
where w.state <> 'live' and r.queue = any($1::text [])
group by r.code
