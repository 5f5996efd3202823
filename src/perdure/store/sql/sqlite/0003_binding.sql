-- How often versions, labels, status or routes have changed.
-- phase: post

alter table meta add column version_count integer not null default 0;
