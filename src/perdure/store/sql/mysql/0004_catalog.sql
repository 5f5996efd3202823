-- Versions: their code, their labels, the routes to them, and who changed what.
-- phase: post

-- A file's bytes, under the SHA-256 of what they are when they are unpacked.
create table if not exists definition_blob (
    sha256 varchar(64) not null,
    codec varchar(64) not null,
    raw_size bigint not null,
    data longblob not null,
    canonical varchar(64),
    scan longtext,
    created_at bigint not null,
    constraint definition_blob_pk primary key (sha256)
) engine = innodb row_format = dynamic character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

-- The first-party files of a program at one time: path to content and size, as JSON.
create table if not exists release_tree (
    id bigint not null,
    tree_sha256 varchar(64) not null,
    manifest longtext not null,
    roots longtext not null,
    dependencies longtext not null,
    source_commit mediumtext,
    created_at bigint not null,
    constraint release_tree_pk primary key (id),
    constraint release_tree_sha256_uq unique (tree_sha256)
) engine = innodb row_format = dynamic character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

-- One content of a workflow. `status_n` is the row of the record that tells of the last change of its status.
create table if not exists definition_version (
    id bigint not null,
    workflow varchar(255) not null,
    sha256 varchar(64) not null,
    scheme varchar(64) not null,
    entry mediumtext not null,
    bootstrap mediumtext not null,
    parts longtext not null,
    config longtext not null,
    deps varchar(64) not null,
    dependencies longtext not null,
    release_id bigint not null,
    status varchar(64) not null,
    status_n bigint,
    created_at bigint not null,
    constraint definition_version_pk primary key (id),
    constraint definition_version_sha256_uq unique (workflow, sha256),
    constraint definition_version_release_fk foreign key (release_id) references release_tree (id),
    constraint definition_version_status_ck check (status in ('active', 'withdrawn', 'closed', 'purged'))
) engine = innodb row_format = dynamic character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

-- One publication: the first time that a semantic version was seen with a content.
create table if not exists version_label (
    seq bigint not null,
    workflow varchar(255) not null,
    label varchar(255) not null,
    semver varchar(255) not null,
    version_id bigint not null,
    published_by mediumtext not null,
    published_at bigint not null,
    constraint version_label_pk primary key (seq),
    constraint version_label_label_uq unique (workflow, label),
    constraint version_label_semver_uq unique (workflow, semver, version_id),
    constraint version_label_version_fk foreign key (version_id) references definition_version (id)
) engine = innodb row_format = dynamic character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

-- What a content is called, in every scheme it was ever registered by.
create table if not exists definition_alias (
    scheme varchar(64) not null,
    sha256 varchar(64) not null,
    version_id bigint not null,
    constraint definition_alias_pk primary key (sha256, scheme, version_id),
    constraint definition_alias_version_fk foreign key (version_id) references definition_version (id)
) engine = innodb row_format = dynamic character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

-- The record.
create table if not exists version_change (
    n bigint not null,
    workflow varchar(255) not null,
    version_id bigint,
    at bigint not null,
    actor mediumtext not null,
    action varchar(64) not null,
    reason mediumtext not null,
    detail longtext not null,
    constraint version_change_pk primary key (n),
    index version_change_workflow (workflow, n)
) engine = innodb row_format = dynamic character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

-- Which versions new runs of a channel start on: every revision. Without arms it is cleared.
create table if not exists route (
    workflow varchar(255) not null,
    channel varchar(255) not null,
    revision bigint not null,
    arms longtext not null,
    salt varchar(255) not null,
    actor mediumtext not null,
    reason mediumtext not null,
    at bigint not null,
    constraint route_pk primary key (workflow, channel, revision)
) engine = innodb row_format = dynamic character set utf8mb4 /*M! collate utf8mb4_nopad_bin */ /*!80017 collate utf8mb4_0900_bin */;

insert ignore into refusal values
('a version keeps its content'),
('labels are append-only'),
('the record of changes is append-only'),
('routes are append-only');

-- The files of a purged version are gone, so it may get them from another release that has its content.
drop trigger if exists definition_version_no_update;

create trigger definition_version_no_update before update on definition_version for each row
insert into refusal select reason from refusal
where reason = 'a version keeps its content'
    and not (old.id <=> new.id and old.workflow <=> new.workflow and old.sha256 <=> new.sha256
        and old.scheme <=> new.scheme and old.entry <=> new.entry and old.bootstrap <=> new.bootstrap
        and old.parts <=> new.parts and old.config <=> new.config and old.deps <=> new.deps
        and old.dependencies <=> new.dependencies and old.created_at <=> new.created_at
        and (old.release_id <=> new.release_id or old.status = 'purged'));

drop trigger if exists definition_version_no_delete;

create trigger definition_version_no_delete before delete on definition_version for each row
insert into refusal values ('a version keeps its content');

drop trigger if exists version_label_no_update;

create trigger version_label_no_update before update on version_label for each row
insert into refusal values ('labels are append-only');

drop trigger if exists version_label_no_delete;

create trigger version_label_no_delete before delete on version_label for each row
insert into refusal values ('labels are append-only');

drop trigger if exists version_change_no_update;

create trigger version_change_no_update before update on version_change for each row
insert into refusal values ('the record of changes is append-only');

drop trigger if exists version_change_no_delete;

create trigger version_change_no_delete before delete on version_change for each row
insert into refusal values ('the record of changes is append-only');

drop trigger if exists route_no_update;

create trigger route_no_update before update on route for each row
insert into refusal values ('routes are append-only');

drop trigger if exists route_no_delete;

create trigger route_no_delete before delete on route for each row
insert into refusal values ('routes are append-only');
