-- The statements about versions that every backend runs; see `queries.sql`.

-- bump_versions: note a change of versions, labels, status or routes
update perdure.meta set version_count = version_count + 1 where id = 1

-- catalog_workflows: workflows that have versions
select distinct workflow from perdure.definition_version order by workflow

-- version_heads: versions of workflows, and the last change of their status
select v.workflow, v.id, v.sha256, v.status, c.at, c.actor, c.reason
from perdure.definition_version as v
left join perdure.version_change as c on c.n = v.status_n
where v.workflow in (?) order by v.id

-- version_labels: labels of workflows
select workflow, seq, label, semver, version_id, published_by, published_at from perdure.version_label
where workflow in (?) order by seq

-- version_routes: the last revision of each route of workflows
select r.channel, r.revision, r.arms, r.salt from perdure.route as r
where
    r.workflow in (?)
    and r.revision = (
        select max(q.revision) from perdure.route as q where q.workflow = r.workflow and q.channel = r.channel
    )
order by r.channel

-- alias_versions: what some hashes are called by, of some workflows
select a.scheme, a.sha256, v.workflow, v.id
from perdure.definition_alias as a
inner join perdure.definition_version as v on a.version_id = v.id
where a.sha256 in (?) and v.workflow in (?)

-- release_by_tree: a release, without its files
select id, tree_sha256, '', '', dependencies, source_commit, created_at from perdure.release_tree where tree_sha256 = ?

-- catalog_ends: the greatest number of each table
select
    (select coalesce(max(id), 0) from perdure.release_tree),
    (select coalesce(max(id), 0) from perdure.definition_version),
    (select coalesce(max(seq), 0) from perdure.version_label),
    (select coalesce(max(n), 0) from perdure.version_change)

-- add_release: a release
insert into perdure.release_tree (id, tree_sha256, manifest, roots, dependencies, source_commit, created_at)
values (?, ?, ?, ?, ?, ?, ?)

-- add_version: a version
insert into perdure.definition_version (
    id, workflow, sha256, scheme, entry, bootstrap, parts, config, deps, dependencies, release_id, status, status_n,
    created_at
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- add_label: a label
insert into perdure.version_label (seq, workflow, label, semver, version_id, published_by, published_at)
values (?, ?, ?, ?, ?, ?, ?)

-- add_alias: what a version is called in a scheme
insert into perdure.definition_alias (scheme, sha256, version_id) values (?, ?, ?)

-- add_change: a row of the record
insert into perdure.version_change (n, workflow, version_id, at, actor, action, reason, detail)
values (?, ?, ?, ?, ?, ?, ?, ?)

-- add_route: a revision of a route
insert into perdure.route (workflow, channel, revision, arms, salt, actor, reason, at) values (?, ?, ?, ?, ?, ?, ?, ?)

-- change_status: a version's status, and the row of the record that tells of it
update perdure.definition_version set status = ?, status_n = ? where id = ?

-- refill_version: a purged version gets its files from a release that has its content
update perdure.definition_version set release_id = ? where id = ? and status = 'purged'

-- manifest_of_version: the files of the release of a version
select r.manifest
from perdure.definition_version as v
inner join perdure.release_tree as r on v.release_id = r.id
where v.id = ?

-- read_definition: a version, and what its release stands on
select
    v.id, v.workflow, v.sha256, v.scheme, v.entry, v.bootstrap, v.parts, v.config, v.deps, v.dependencies,
    v.release_id, v.status, v.status_n, v.created_at, r.dependencies, c.at, c.actor, c.reason
from perdure.definition_version as v
inner join perdure.release_tree as r on v.release_id = r.id
left join perdure.version_change as c on c.n = v.status_n
where v.id = ?

-- labels_of_version: labels of a version
select seq, label, semver, version_id, published_by, published_at from perdure.version_label where version_id = ? order by seq

-- signatures_of_version: signatures under the labels of a version
select s.seq, s.key_id, s.value, s.signed_by, s.signed_at
from perdure.version_signature as s
inner join perdure.version_label as l on s.seq = l.seq
where l.version_id = ? order by s.seq, s.signed_at, s.value

-- add_signature: a signature
insert into perdure.version_signature (seq, key_id, value, signed_by, signed_at) values (?, ?, ?, ?, ?)

-- read_release: a release
select id, tree_sha256, manifest, roots, dependencies, source_commit, created_at from perdure.release_tree where id = ?

-- read_changes: the record of a workflow, newest first
select n, workflow, version_id, at, actor, action, reason, detail from perdure.version_change
where workflow = ? and at >= ? order by n desc limit ?

-- version_usage: runs of each version and state
select version_id, status, count(*), min(created_at) from perdure.run group by version_id, status order by version_id, status

-- version_usage_of: runs of each version in some states
select version_id, status, count(*), min(created_at) from perdure.run
where status in (?) group by version_id, status order by version_id, status

-- blob_scans: what is kept of contents as source
select sha256, scan from perdure.definition_blob where sha256 in (?) and scan is not null

-- blobs_there: contents that are there
select sha256 from perdure.definition_blob where sha256 in (?)

-- read_blobs: contents
select sha256, codec, raw_size, data, canonical, scan from perdure.definition_blob
where sha256 in (?)

-- all_versions: all versions, as far as their life is concerned
select v.workflow, v.id, v.sha256, v.status, c.at, v.release_id
from perdure.definition_version as v
left join perdure.version_change as c on c.n = v.status_n
order by v.id

-- used_versions: versions that runs are bound to
select distinct version_id from perdure.run where version_id <> 0

-- all_blobs: size and age of all contents
select sha256, length(data), created_at from perdure.definition_blob order by sha256

-- all_manifests: the files of all releases
select id, manifest from perdure.release_tree order by id

-- delete_blobs: contents that nobody needs
delete from perdure.definition_blob where sha256 in (?)

-- release_versions: the versions that came with a release first and are not purged
select id from perdure.definition_version where release_id = ? and status <> 'purged' order by id

-- other_roots: the first-party names of releases, each with a version that has them
select r.id, r.roots, v.workflow, min(l.label)
from perdure.release_tree as r
inner join perdure.definition_version as v on r.id = v.release_id
inner join perdure.version_label as l on v.id = l.version_id
group by r.id, r.roots, v.workflow, v.id
order by r.id

-- add_plan: keep a plan of upgrades
insert into perdure.upgrade_plan (id, workflow, to_version, label, selector, actor, at)
values (?, ?, ?, ?, ?, ?, ?)

-- add_item: keep what was found for one run
insert into perdure.upgrade_item (plan_id, n, run_id, from_version, epoch, events, verdict)
values (?, ?, ?, ?, ?, ?, ?)

-- read_plan: a plan of upgrades
select id, workflow, to_version, label, selector, actor, at from perdure.upgrade_plan where id = ?

-- read_items: what was found for the runs of a plan
select plan_id, n, run_id, from_version, epoch, events, verdict from perdure.upgrade_item
where plan_id = ? order by n

-- upgrades_by_plan: what was done by a plan
select run_id, new_epoch, from_version, to_version, plan_id, forced, actor, reason, at from perdure.run_upgrade where plan_id = ? order by at, run_id

-- upgrades_of_run: every change of a run's version
select run_id, new_epoch, from_version, to_version, plan_id, forced, actor, reason, at from perdure.run_upgrade where run_id = ? order by new_epoch

-- host_environments: what was set for the version hosts of a release's versions, oldest first
select c.version_id, c.detail from perdure.version_change as c
inner join perdure.definition_version as v on c.version_id = v.id
where c.action = 'host_env_set' and v.release_id = ? order by c.n
