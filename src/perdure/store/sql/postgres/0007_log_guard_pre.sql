-- That an event belongs to a run is what keeps the lock shut after a purge. It is seen to for all events of a statement
-- at once: a foreign key looks for the run of each by itself, and writes to its row in order to lock it.
-- phase: pre

-- Whoever continues a log holds, from the look to the commit, what a purge has to have to itself. So nobody takes a run
-- for there that is about to be gone. The first event brings its run along: its transaction, a user's, may take its time.
create function perdure.look_for_runs() returns trigger language plpgsql as $$
begin
    if exists (select 1 from added as a where a.seq > 1) then
        perform pg_advisory_xact_lock_shared(hashtextextended('perdure.event', 0));
        if current_setting('transaction_isolation') <> 'read committed' then
            -- It may see what is gone by now; to lock that fails.
            perform 1 from perdure.run as r where r.id in (select a.run_id from added as a) for key share;
        end if;
    end if;
    -- Not by `not exists`, of which a plan may make a look at all runs there are.
    if exists (select 1 from added as a where (select r.id from perdure.run as r where r.id = a.run_id) is null) then
        raise exception 'an event was added to the log of a run that is not there'
            using errcode = 'foreign_key_violation', schema = tg_table_schema, table = tg_table_name;
    end if;
    return null;
end $$;

create trigger event_runs after insert on perdure.event
referencing new table as added for each statement execute function perdure.look_for_runs();

-- The purge of a run deletes its log first. Here it waits until all who have looked are done, and keeps others waiting
-- for as long; what came in meanwhile goes, too.
create function perdure.clear_logs() returns trigger language plpgsql set lock_timeout = '100ms' as $$
begin
    perform pg_advisory_xact_lock(hashtextextended('perdure.event', 0));
    delete from perdure.event as e where e.run_id in (select g.id from gone as g);
    return null;
end $$;

create trigger run_logs after delete on perdure.run
referencing old table as gone for each statement execute function perdure.clear_logs();

alter table perdure.event drop constraint event_run_fk;
