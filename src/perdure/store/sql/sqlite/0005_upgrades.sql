-- Plans of upgrades: what was found for each run, so that what is done later is what somebody has read.
-- phase: post

create table upgrade_plan (
    id text not null,
    workflow text not null,
    to_version integer not null,
    label text not null,
    selector text not null,
    actor text not null,
    at integer not null,
    constraint upgrade_plan_pk primary key (id)
) strict;

-- One run of a plan: its binding, its epoch and the length of its log at the check, and the verdict as JSON.
create table upgrade_item (
    plan_id text not null,
    n integer not null,
    run_id text not null,
    from_version integer not null,
    epoch integer not null,
    events integer not null,
    verdict text not null,
    constraint upgrade_item_pk primary key (plan_id, n)
) strict;

create index run_upgrade_plan on run_upgrade (plan_id) where plan_id is not null;

create trigger upgrade_plan_no_update before update on upgrade_plan
begin
    select raise(abort, 'plans of upgrades are append-only');
end;

create trigger upgrade_item_no_update before update on upgrade_item
begin
    select raise(abort, 'plans of upgrades are append-only');
end;
