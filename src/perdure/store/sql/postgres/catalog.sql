-- The statements about versions that are this backend's own. `perdure` stands for the schema's name; a list
-- of texts is an array.

-- lock_catalog: whoever changes anything of versions waits here for the one before
select version_count from perdure.meta where id = 1 for no key update

-- add_blob: a content, unless it is there
insert into perdure.definition_blob (sha256, codec, raw_size, data, canonical, scan, created_at)
values (?, ?, ?, ?, ?, ?, ?)
on conflict do nothing

-- next_code: the first code behind another that runs of a queue wait with; asked for as `min`, all would be read
select min(f.code) from (
    (
        select r.code from perdure.run as r
        where r.queue = $1::text and r.partition_key is null and r.code > $2::text and r.wake_at is not null
        order by r.partition_key, r.code limit 1
    )
    union all
    select min(n.code) as code from perdure.lane as n where n.queue = $1::text and n.code > $2::text
) as f

-- demand: what runs need code for: (what, code or versions, since when, whose), one round trip of one statement
select 'bereft' as what, r.code as code, min(r.updated_at) as since, null::text as whose
from perdure.run as r
inner join perdure.worker as w on r.owner = w.id
where w.state <> 'live' and r.queue = any($1::text [])
group by r.code
union all
select distinct 'parked', r.code, null::bigint, null::text
from perdure.run as r
where r.status = 'parked' and r.queue = any($1::text []) and r.detail like $2::text
union all
select 'carried', w.versions, null::bigint, w.parent
from perdure.worker as w
where w.state = 'live'
union all
select
    'waits',
    (
        select min(f.code) from (
            (
                select r.code from perdure.run as r
                where r.queue = q.queue and r.partition_key is null and r.code > '' and r.wake_at is not null
                order by r.partition_key, r.code limit 1
            )
            union all
            select min(n.code) as code from perdure.lane as n where n.queue = q.queue and n.code > ''
        ) as f
    ),
    null::bigint, q.queue
from unnest($1::text []) as q (queue)
