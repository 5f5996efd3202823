-- That an event belongs to a run is what keeps the lock shut after a purge. A foreign key sees to it for each event by
-- itself, and writes to the row of its run in order to lock it. Here it is seen to for all events of a statement at once.
-- phase: pre

-- Whoever adds many events holds the gate open, and need not lock their runs: no purge deletes runs before the gate is
-- its own. While it is, or one waits for it, runs are locked, as they are for an event by itself: its transaction may be
-- a user's, and take its time. As with a foreign key, the right to look and to lock is that of the tables' owner.
create function perdure.look_for_runs() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    events bigint;
    missed text;
begin
    select count(*), min(a.run_id) into events, missed from added as a;
    if events = 1 then
        perform 1 from perdure.run as r where r.id = missed for key share;
        missed := case when not found then missed end;
    elsif
        current_setting('transaction_isolation') = 'read committed'
        and pg_try_advisory_xact_lock_shared(hashtextextended('perdure.event', 0))
    then
        -- A look for each: of `not exists` a plan may make one at all runs there are.
        missed := (
            select a.run_id from added as a
            where (select true from perdure.run as r where r.id = a.run_id) is null limit 1
        );
    else
        for missed in select distinct a.run_id from added as a order by a.run_id loop
            perform 1 from perdure.run as r where r.id = missed for key share;
            exit when not found;
            missed := null;
        end loop;
    end if;
    if missed is not null then
        raise exception 'an event was added to the log of run %, which is not there', missed
            using errcode = 'foreign_key_violation', schema = tg_table_schema, table = tg_table_name;
    end if;
    return null;
end $$;

create trigger event_runs after insert on perdure.event
referencing new table as added for each statement execute function perdure.look_for_runs();

create function perdure.close_gate() returns trigger language plpgsql as $$
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'runs are deleted at READ COMMITTED only: what their logs have got meanwhile has to be seen'
            using errcode = 'feature_not_supported';
    end if;
    perform pg_advisory_xact_lock(hashtextextended('perdure.event', 0));
    return null;
end $$;

create trigger run_gate before delete on perdure.run
for each statement execute function perdure.close_gate();

-- A purge deletes the log before the run. What came in between goes, too.
create function perdure.clear_logs() returns trigger language plpgsql as $$
begin
    delete from perdure.event as e where e.run_id = any(array(select g.id from gone as g));
    return null;
end $$;

create trigger run_logs after delete on perdure.run
referencing old table as gone for each statement execute function perdure.clear_logs();

create trigger run_keeps_id before update of id on perdure.run
for each statement execute function perdure.keep_versions('a run keeps its id');

create trigger run_no_truncate before truncate on perdure.run
for each statement execute function perdure.keep_versions('a run keeps its log');

alter table perdure.event drop constraint event_run_fk;
