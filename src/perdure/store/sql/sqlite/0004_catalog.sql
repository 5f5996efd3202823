-- Versions: their code, their labels, the routes to them, and who changed what.
-- phase: post

-- A file's bytes, under the SHA-256 of what they are when they are unpacked.
create table definition_blob (
    sha256 text not null,
    codec text not null,
    raw_size integer not null,
    data blob not null,
    canonical text,
    scan text,
    created_at integer not null,
    constraint definition_blob_pk primary key (sha256)
) strict;

-- The first-party files of a program at one time: path to content and size, as JSON.
create table release_tree (
    id integer not null,
    tree_sha256 text not null,
    manifest text not null,
    roots text not null,
    dependencies text not null,
    source_commit text,
    created_at integer not null,
    constraint release_tree_pk primary key (id),
    constraint release_tree_sha256_uq unique (tree_sha256)
) strict;

-- One content of a workflow. `status_n` is the row of the record that tells of the last change of its status.
create table definition_version (
    id integer not null,
    workflow text not null,
    sha256 text not null,
    scheme text not null,
    entry text not null,
    bootstrap text not null,
    parts text not null,
    config text not null,
    deps text not null,
    dependencies text not null,
    release_id integer not null,
    status text not null,
    status_n integer,
    created_at integer not null,
    constraint definition_version_pk primary key (id),
    constraint definition_version_sha256_uq unique (workflow, sha256),
    constraint definition_version_release_fk foreign key (release_id) references release_tree (id),
    constraint definition_version_status_ck check (status in ('active', 'withdrawn', 'closed', 'purged'))
) strict;

-- One publication: the first time that a semantic version was seen with a content.
create table version_label (
    seq integer not null,
    workflow text not null,
    label text not null,
    semver text not null,
    version_id integer not null,
    published_by text not null,
    published_at integer not null,
    constraint version_label_pk primary key (seq),
    constraint version_label_label_uq unique (workflow, label),
    constraint version_label_semver_uq unique (workflow, semver, version_id),
    constraint version_label_version_fk foreign key (version_id) references definition_version (id)
) strict;

-- What a content is called, in every scheme it was ever registered by.
create table definition_alias (
    scheme text not null,
    sha256 text not null,
    version_id integer not null,
    constraint definition_alias_pk primary key (sha256, scheme, version_id),
    constraint definition_alias_version_fk foreign key (version_id) references definition_version (id)
) strict;

-- The record.
create table version_change (
    n integer not null,
    workflow text not null,
    version_id integer,
    at integer not null,
    actor text not null,
    action text not null,
    reason text not null,
    detail text not null,
    constraint version_change_pk primary key (n)
) strict;

create index version_change_workflow on version_change (workflow, n);

-- Which versions new runs of a channel start on: every revision. Without arms it is cleared.
create table route (
    workflow text not null,
    channel text not null,
    revision integer not null,
    arms text not null,
    salt text not null,
    actor text not null,
    reason text not null,
    at integer not null,
    constraint route_pk primary key (workflow, channel, revision)
) strict;

create trigger definition_version_no_update before update of
    id, workflow, sha256, scheme, entry, bootstrap, parts, config, deps, dependencies, created_at
on definition_version
begin
    select raise(abort, 'a version keeps its content');
end;

-- The files of a purged version are gone, so it may get them from another release that has its content.
create trigger definition_version_keep_release before update of release_id on definition_version
when old.status <> 'purged'
begin
    select raise(abort, 'a version keeps its content');
end;

create trigger definition_version_no_delete before delete on definition_version
begin
    select raise(abort, 'a version keeps its content');
end;

create trigger version_label_no_update before update on version_label
begin
    select raise(abort, 'labels are append-only');
end;

create trigger version_label_no_delete before delete on version_label
begin
    select raise(abort, 'labels are append-only');
end;

create trigger version_change_no_update before update on version_change
begin
    select raise(abort, 'the record of changes is append-only');
end;

create trigger version_change_no_delete before delete on version_change
begin
    select raise(abort, 'the record of changes is append-only');
end;

create trigger route_no_update before update on route
begin
    select raise(abort, 'routes are append-only');
end;

create trigger route_no_delete before delete on route
begin
    select raise(abort, 'routes are append-only');
end;
