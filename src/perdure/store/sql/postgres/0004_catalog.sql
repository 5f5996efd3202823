-- Versions: their code, their labels, the routes to them, and who changed what.
-- phase: post

-- A file's bytes, under the SHA-256 of what they are when they are unpacked.
create table perdure.definition_blob (
    sha256 text collate "C" not null,
    codec text collate "C" not null,
    raw_size bigint not null,
    data bytea not null,
    canonical text collate "C",
    scan text,
    created_at bigint not null,
    constraint definition_blob_pk primary key (sha256)
);

-- The first-party files of a program at one time: path to content and size, as JSON.
create table perdure.release_tree (
    id bigint not null,
    tree_sha256 text collate "C" not null,
    manifest text not null,
    roots text not null,
    dependencies text not null,
    source_commit text,
    created_at bigint not null,
    constraint release_tree_pk primary key (id),
    constraint release_tree_sha256_uq unique (tree_sha256)
);

-- One content of a workflow. `status_n` is the row of the record that tells of the last change of its status.
create table perdure.definition_version (
    id bigint not null,
    workflow text collate "C" not null,
    sha256 text collate "C" not null,
    scheme text collate "C" not null,
    entry text not null,
    bootstrap text not null,
    parts text not null,
    config text not null,
    deps text collate "C" not null,
    dependencies text not null,
    release_id bigint not null,
    status text collate "C" not null,
    status_n bigint,
    created_at bigint not null,
    constraint definition_version_pk primary key (id),
    constraint definition_version_sha256_uq unique (workflow, sha256),
    constraint definition_version_release_fk foreign key (release_id) references perdure.release_tree (id),
    constraint definition_version_status_ck check (status in ('active', 'withdrawn', 'closed', 'purged'))
);

-- One publication: the first time that a semantic version was seen with a content.
create table perdure.version_label (
    seq bigint not null,
    workflow text collate "C" not null,
    label text collate "C" not null,
    semver text collate "C" not null,
    version_id bigint not null,
    published_by text not null,
    published_at bigint not null,
    constraint version_label_pk primary key (seq),
    constraint version_label_label_uq unique (workflow, label),
    constraint version_label_semver_uq unique (workflow, semver, version_id),
    constraint version_label_version_fk foreign key (version_id) references perdure.definition_version (id)
);

-- What a content is called, in every scheme it was ever registered by.
create table perdure.definition_alias (
    scheme text collate "C" not null,
    sha256 text collate "C" not null,
    version_id bigint not null,
    constraint definition_alias_pk primary key (sha256, scheme, version_id),
    constraint definition_alias_version_fk foreign key (version_id) references perdure.definition_version (id)
);

-- The record.
create table perdure.version_change (
    n bigint not null,
    workflow text collate "C" not null,
    version_id bigint,
    at bigint not null,
    actor text not null,
    action text collate "C" not null,
    reason text not null,
    detail text not null,
    constraint version_change_pk primary key (n)
);

create index version_change_workflow on perdure.version_change (workflow, n);

-- Which versions new runs of a channel start on: every revision. Without arms it is cleared.
create table perdure.route (
    workflow text collate "C" not null,
    channel text collate "C" not null,
    revision bigint not null,
    arms text not null,
    salt text collate "C" not null,
    actor text not null,
    reason text not null,
    at bigint not null,
    constraint route_pk primary key (workflow, channel, revision)
);

create function perdure.keep_versions() returns trigger language plpgsql as $$
begin
    raise exception '%', tg_argv[0] using errcode = 'integrity_constraint_violation';
end $$;

create trigger definition_version_no_update before update of
    id, workflow, sha256, scheme, entry, bootstrap, parts, config, deps, dependencies, created_at
on perdure.definition_version for each row execute function perdure.keep_versions('a version keeps its content');

-- The files of a purged version are gone, so it may get them from another release that has its content.
create trigger definition_version_keep_release before update of release_id on perdure.definition_version for each row
when (old.status <> 'purged') execute function perdure.keep_versions('a version keeps its content');

create trigger definition_version_no_delete before delete on perdure.definition_version
for each row execute function perdure.keep_versions('a version keeps its content');

create trigger definition_version_no_truncate before truncate on perdure.definition_version
for each statement execute function perdure.keep_versions('a version keeps its content');

create trigger version_label_no_update before update or delete on perdure.version_label
for each row execute function perdure.keep_versions('labels are append-only');

create trigger version_label_no_truncate before truncate on perdure.version_label
for each statement execute function perdure.keep_versions('labels are append-only');

create trigger version_change_no_update before update or delete on perdure.version_change
for each row execute function perdure.keep_versions('the record of changes is append-only');

create trigger version_change_no_truncate before truncate on perdure.version_change
for each statement execute function perdure.keep_versions('the record of changes is append-only');

create trigger route_no_update before update or delete on perdure.route
for each row execute function perdure.keep_versions('routes are append-only');

create trigger route_no_truncate before truncate on perdure.route
for each statement execute function perdure.keep_versions('routes are append-only');
