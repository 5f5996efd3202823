-- Runs are bound to a version of their workflow, and what is due is found by the code that it needs.
-- phase: post

-- The version; 0 while a run is bound to none. The code is what a worker must have to run it: the version and the
-- workflow as one text, so that one key finds what is due.
alter table perdure.run
add column version_id bigint not null default 0,
add column code text collate "C" not null generated always as (version_id::text || ' ' || workflow) stored;

drop index perdure.run_due;
create index run_due on perdure.run (queue, partition_key, code, priority desc, wake_at, no) where wake_at is not null;

drop trigger run_lane_insert on perdure.run;
drop trigger run_lane_update on perdure.run;
drop function perdure.turn_lane(text, text, text, bigint, bigint);
alter table perdure.lane rename column workflow to code;

update perdure.lane set code = '0 ' || code;

create or replace function perdure.join_lane() returns trigger language plpgsql as $$
begin
    loop
        update perdure.lane set turn_at = new.wake_at
        where queue = new.queue and code = new.code and priority = new.priority
            and partition_key = new.partition_key and turn_at > new.wake_at;
        exit when found;
        perform 1 from perdure.lane
        where queue = new.queue and code = new.code and priority = new.priority
            and partition_key = new.partition_key
        for key share;
        exit when found;
        insert into perdure.lane (queue, code, priority, partition_key, turn_at)
        values (new.queue, new.code, new.priority, new.partition_key, new.wake_at)
        on conflict do nothing;
        exit when found;
    end loop;
    return null;
end $$;

create trigger run_lane_insert after insert on perdure.run for each row
when (new.partition_key is not null and new.wake_at is not null) execute function perdure.join_lane();

create trigger run_lane_update after update of wake_at, version_id on perdure.run for each row
when (new.partition_key is not null and new.wake_at is not null) execute function perdure.join_lane();

-- Note when it is a key's turn again, and forget its line if nobody waits in it. Only where nobody is just joining, so
-- that what is seen here is all there is; else a turn is noted and nothing is put off.
create function perdure.turn_lane(of_queue text, of_key text, of_code text, of_priority bigint, turn bigint)
returns void language plpgsql as $$
declare
    first_at bigint;
begin
    perform 1 from perdure.lane as n
    where n.queue = of_queue and n.code = of_code and n.priority = of_priority and n.partition_key = of_key
    for update skip locked;
    if not found then
        perform 1 from perdure.lane as n
        where n.queue = of_queue and n.code = of_code and n.priority = of_priority
            and n.partition_key = of_key
        for no key update skip locked;
        if found and turn > 0 then
            update perdure.lane as n set turn_at = turn
            where n.queue = of_queue and n.code = of_code and n.priority = of_priority
                and n.partition_key = of_key;
        end if;
        return;
    end if;
    select r.wake_at into first_at from perdure.run as r
    where r.queue = of_queue and r.partition_key = of_key and r.code = of_code and r.priority = of_priority
        and r.wake_at is not null
    order by r.wake_at limit 1;
    if first_at is null then
        delete from perdure.lane as n
        where n.queue = of_queue and n.code = of_code and n.priority = of_priority
            and n.partition_key = of_key;
    else
        update perdure.lane as n set turn_at = greatest(turn, first_at)
        where n.queue = of_queue and n.code = of_code and n.priority = of_priority
            and n.partition_key = of_key;
    end if;
end $$;

-- Every change of a run's version, by whom and why.
create table perdure.run_upgrade (
    run_id text collate "C" not null,
    new_epoch bigint not null,
    from_version bigint not null,
    to_version bigint not null,
    plan_id text,
    forced bigint not null,
    actor text not null,
    reason text not null,
    at bigint not null,
    constraint run_upgrade_pk primary key (run_id, new_epoch)
);

create trigger run_upgrade_no_update before update on perdure.run_upgrade
for each row execute function perdure.keep_changes();

create function perdure.keep_binding() returns trigger language plpgsql as $$
begin
    if not exists (
        select 1 from perdure.run_upgrade as u
        where u.run_id = new.id and u.new_epoch = new.epoch and u.to_version = new.version_id
    ) then
        raise exception 'run % is bound to its version; the binding changes only through an upgrade', new.id
            using errcode = 'integrity_constraint_violation';
    end if;
    return new;
end $$;

create trigger run_binding before update of version_id on perdure.run for each row
when (old.version_id <> 0 and new.version_id <> old.version_id) execute function perdure.keep_binding();

-- The versions a worker carries, and the worker it was started by to carry them.
alter table perdure.worker add column versions text not null default '[]', add column parent text;

-- One row: what grows with every change of versions, labels and routes, so that everybody knows when to read them anew.
create table perdure.meta (
    id bigint not null,
    version_count bigint not null,
    constraint meta_pk primary key (id),
    constraint meta_id_ck check (id = 1)
) with (fillfactor = 50);

insert into perdure.meta (id, version_count) values (1, 0);
