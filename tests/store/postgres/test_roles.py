"""A schema of another name, made by its owner, used by a role that may do only what it needs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from perdure.api.schema import schema_script
from perdure.errors import UsageError
from perdure.model.claim import ClaimRequest
from perdure.model.filter import RunFilter
from perdure.model.write import COMMITTED, Conflict
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.migrate import migrations
from perdure.testing.author import Author, claims_for, worker
from perdure.testing.conformance.publishing import clear_route, publish, set_route, set_status
from tests.servers.fixtures import Database
from tests.servers.postgres import USER

GRANTS = """
grant usage on schema jobs to {role};
grant select, insert, update, delete on all tables in schema jobs to {role};
revoke update on jobs.event, jobs.request, jobs.queue_change, jobs.schema_migration from {role};
revoke delete on jobs.request, jobs.queue_change, jobs.schema_migration from {role};
revoke insert on jobs.schema_migration from {role};
revoke update, delete on jobs.version_label, jobs.version_signature, jobs.definition_alias from {role};
revoke update, delete on jobs.version_change, jobs.route, jobs.release_tree from {role};
revoke delete on jobs.definition_version from {role};
revoke update on jobs.definition_blob from {role};
"""


@pytest.fixture
def role(postgres_db: Database) -> str:
    name = f"worker_of_{postgres_db.name}"
    postgres_db.execute(f"create role {name} login password 'secret'")
    return name


def url_of(database: Database, role: str) -> str:
    return database.url.replace(f"//{USER}@", f"//{role}:secret@", 1) + "?schema=jobs"


def test_a_role_needs_only_the_documented_rights(postgres_db: Database, role: str) -> None:
    owner = f"{postgres_db.url}?schema=jobs"
    with psycopg.connect(postgres_db.url, autocommit=True) as connection:
        connection.execute(schema_script(owner).encode())
        connection.execute(GRANTS.format(role=role).encode())
    store = open_store(url_of(postgres_db, role), StoreOptions(migrate=False))
    store.open()
    try:
        use(store)
        facts = {fact.name: fact for fact in store.stats().facts}
        assert [fact for fact in facts.values() if fact.problem] == []
        assert facts["schema"].value.startswith("jobs: ")
    finally:
        store.close()
    assert postgres_db.execute("select count(*) from jobs.request") == [(1,)]


def use(store: Store) -> None:
    """Make every kind of call."""
    publish(store.catalog, "v1", "1.0.0")
    set_route(store.catalog, {"1.0.0": 1})
    clear_route(store.catalog)
    set_status(store.catalog, 1, "closed")
    store.catalog.collect(keep=0, closed_before=2**62, unused_before=2**62, at=0, actor="ana", reason="")
    author = Author("run-1", store.now())
    assert store.commit([author.create(tags=(("a", "b"),))]) == [COMMITTED]
    store.register(worker("w1", store.now()))
    claims = store.claim(ClaimRequest("w1", ("default",), ("0 order",), 1), claims_for("w1"))
    assert claims is not None
    (claimed,) = claims.taken
    author.follow(claimed)
    assert store.heartbeat("w1", 1_000_000).owned
    stale = author.stale()
    assert store.commit([author.send(), author.step()]) == [COMMITTED] * 2
    assert len(store.inbox("run-1")) == 1
    assert store.commit([stale.step(), author.step(consumed=(1,))]) == [Conflict(3), COMMITTED]
    author = Author("run-2", store.now())
    assert store.commit([author.create(), author.claimed(), author.completed(), author.purge()]) == [COMMITTED] * 4
    store.heartbeat("w1", 0)
    store.sweep()
    assert [row.id for row in store.list(RunFilter())] == ["run-1"]


def test_what_a_role_lacks_is_named(postgres_db: Database, role: str) -> None:
    with psycopg.connect(postgres_db.url, autocommit=True) as connection:
        connection.execute(schema_script(f"{postgres_db.url}?schema=jobs").encode())
        connection.execute(GRANTS.format(role=role).encode())
        connection.execute(f"revoke delete on jobs.tag from {role}".encode())
        connection.execute(f"revoke insert on jobs.event from {role}".encode())
    store = open_store(url_of(postgres_db, role), StoreOptions(migrate=False))
    store.open()
    try:
        problems = {fact.name: fact.problem for fact in store.stats().facts}
        assert "INSERT on event" in problems["rights"]
        assert "DELETE on tag" in problems["rights"]
        with pytest.raises(UsageError, match="lacks a right"):
            store.commit([Author("run-1", store.now()).create()])
    finally:
        store.close()


@pytest.mark.parametrize("schema", ["Jobs", "a.b", "x; drop", "", "pg_jobs", '"q"'])
def test_a_schema_of_an_odd_name_is_refused(postgres_db: Database, schema: str) -> None:
    with pytest.raises(UsageError, match="schema"):
        open_store(f"{postgres_db.url}?schema={schema}", StoreOptions())


def test_two_schemas_of_a_database_know_nothing_of_each_other(postgres_db: Database) -> None:
    stores = [open_store(f"{postgres_db.url}?schema={name}", StoreOptions()) for name in ("one", "two")]
    try:
        for store in stores:
            store.open()
            assert store.commit([Author("run-1", store.now()).create(fresh=False)]) == [COMMITTED]
    finally:
        for store in stores:
            store.close()


def test_a_schema_that_is_not_there_is_not_made_unless_that_is_allowed(postgres_db: Database) -> None:
    for options in (StoreOptions(create=False), StoreOptions(read_only=True), StoreOptions(migrate=False)):
        store = open_store(postgres_db.url, options)
        with pytest.raises(UsageError, match="perdure migrate"):
            store.open()
        store.close()
    assert postgres_db.execute("select count(*) from pg_namespace where nspname = 'perdure'") == [(0,)]


def test_a_schema_with_tables_of_others_is_left_alone(postgres_db: Database) -> None:
    postgres_db.execute("create schema perdure")
    postgres_db.execute("create table perdure.run (id int)")
    store = open_store(postgres_db.url, StoreOptions())
    with pytest.raises(UsageError, match="perdure did not make"):
        store.open()


def test_many_that_open_at_once_migrate_once(postgres_db: Database) -> None:
    stores = [open_store(postgres_db.url, StoreOptions()) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(store.open) for store in stores]:
            done.result()
    for store in stores:
        store.close()
    assert postgres_db.execute("select count(*) from perdure.schema_migration") == [(len(migrations("postgres")),)]


def test_a_newer_schema_is_refused(postgres_db: Database) -> None:
    store = open_store(postgres_db.url, StoreOptions())
    store.open()
    store.close()
    postgres_db.execute("insert into perdure.schema_migration values (99, 'later', 'x', 0)")
    with pytest.raises(Exception, match="schema") as caught:
        store.open()
    assert type(caught.value).__name__ in {"SchemaTooNew", "UsageError"}


@pytest.mark.parametrize(
    "statement", ["update perdure.event set name = 'x'", "delete from perdure.event", "truncate perdure.event"]
)
def test_the_log_is_append_only_even_for_its_owner(postgres_db: Database, statement: str) -> None:
    store = open_store(postgres_db.url, StoreOptions())
    store.open()
    try:
        store.commit([Author("run-1", store.now()).create()])
    finally:
        store.close()
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
        postgres_db.execute(statement)


def test_a_server_that_does_not_give_what_is_promised_is_refused(postgres_db: Database) -> None:
    with pytest.raises(UsageError, match="synchronous_standby_names is empty"):
        open_store(postgres_db.url, StoreOptions(durability="quorum")).open()
    with pytest.raises(UsageError, match="no durability 'memory'"):
        open_store(postgres_db.url, StoreOptions(durability="memory"))
