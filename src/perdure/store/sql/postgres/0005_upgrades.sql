-- Plans of upgrades: what was found for each run, so that what is done later is what somebody has read.
-- phase: post

create table perdure.upgrade_plan (
    id text collate "C" not null,
    workflow text not null,
    to_version bigint not null,
    label text not null,
    selector text not null,
    actor text not null,
    at bigint not null,
    constraint upgrade_plan_pk primary key (id)
);

-- One run of a plan: its binding, its epoch and the length of its log at the check, and the verdict as JSON.
create table perdure.upgrade_item (
    plan_id text collate "C" not null,
    n bigint not null,
    run_id text collate "C" not null,
    from_version bigint not null,
    epoch bigint not null,
    events bigint not null,
    verdict text not null,
    constraint upgrade_item_pk primary key (plan_id, n)
);

create index run_upgrade_plan on perdure.run_upgrade (plan_id) where plan_id is not null;

create trigger upgrade_plan_no_update before update on perdure.upgrade_plan
for each row execute function perdure.keep_versions('plans of upgrades are append-only');

create trigger upgrade_item_no_update before update on perdure.upgrade_item
for each row execute function perdure.keep_versions('plans of upgrades are append-only');

-- Says which run it is, and what it is bound to.
create or replace function perdure.keep_binding() returns trigger language plpgsql as $$
begin
    if not exists (
        select 1 from perdure.run_upgrade as u
        where u.run_id = new.id and u.new_epoch = new.epoch and u.to_version = new.version_id
    ) then
        raise exception 'run % is bound to %@%; the binding changes only through an upgrade.',
            old.id, old.workflow, old.workflow_version using errcode = 'integrity_constraint_violation';
    end if;
    return new;
end $$;
