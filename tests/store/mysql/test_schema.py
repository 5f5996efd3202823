"""The schema, and what is asked of a server before it is used."""

from __future__ import annotations

import ssl
import subprocess
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pymysql
import pytest

from perdure.errors import SchemaTooNew, StoreUnavailable, UsageError
from perdure.model.write import COMMITTED, Write
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.migrate import migrations, script
from perdure.store.mysql.address import address
from perdure.store.mysql.connection import Connection
from perdure.store.mysql.schema import check, problems, server_of
from perdure.testing.author import Author
from tests.servers.certificate import Certificate
from tests.servers.fixtures import Database, Servers
from tests.servers.mariadb import Mariadb
from tests.servers.programs import find


def try_open(url: str, **options: object) -> None:
    store = open_store(url, StoreOptions(**options))  # type: ignore[arg-type]
    try:
        store.open()
        author = Author("run-1", store.now())
        assert store.commit([author.create(), author.claimed("w")]) == [COMMITTED] * 2
    finally:
        store.close()


# ---- migrations ----

ALL = [migration.number for migration in migrations("mysql")]


def applied(database: Database) -> list[int]:
    return [number for (number,) in database.execute("select number from schema_migration order by number")]


def test_many_may_open_a_new_database_at_once(open_more: Callable[[], Store], mariadb_db: Database) -> None:
    failures: list[BaseException] = []

    def one() -> None:
        try:
            open_more()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert applied(mariadb_db) == ALL


SHAPE = """
    select table_name, ordinal_position, column_name, column_type, is_nullable, column_default, extra, collation_name,
    generation_expression from information_schema.columns where table_schema = database();
    select table_name, index_name, seq_in_index, column_name, non_unique from information_schema.statistics
    where table_schema = database();
    select trigger_name, event_object_table, event_manipulation, action_timing, action_statement
    from information_schema.triggers where trigger_schema = database();
    select table_name, constraint_name, constraint_type from information_schema.table_constraints
    where table_schema = database();
    select constraint_name, check_clause from information_schema.check_constraints
    where constraint_schema = database();
    select * from refusal;
    select * from meta;
    select number, name, checksum from schema_migration
"""
STATEMENTS = script("mysql").replace("begin;", "").split(";\n\n")[:-1]
RECORDS = [place for place, one in enumerate(STATEMENTS) if "insert into schema_migration " in one]
SAMPLE = sorted({(first + last) // 2 for first, last in pairwise([0, *RECORDS])} | set(RECORDS))
"""So many statements are there: up to the middle of each migration, and all of it but that it is recorded."""


def shape(database: Database) -> list[list[Any]]:
    return [sorted(database.execute(query), key=repr) for query in SHAPE.split(";")]


@pytest.fixture(scope="module")
def sound(shared_servers: Callable[[str], Any]) -> list[list[Any]]:
    """Give what a schema is made of whose migrations have not broken off."""
    database = Database(shared_servers("mariadb"), shared_servers("mariadb").new_database())
    try_open(database.url)
    found = shape(database)
    database.drop()
    return found


def break_off(database: Database, done: int, sound: list[list[Any]]) -> None:
    """Have so many statements there, and all the others by opening a store."""
    with database.server.connect(database.name) as connection, connection.cursor() as cursor:
        for statement in STATEMENTS[:done]:
            cursor.execute(statement.strip())
    try_open(database.url)
    for found, expected in zip(shape(database), sound, strict=True):
        assert found == expected, f"after {done} statements"


def test_the_sample_has_every_migration() -> None:
    assert len(RECORDS) == len(ALL)
    assert len(SAMPLE) == 2 * len(ALL)


@pytest.mark.parametrize("done", SAMPLE)
def test_a_migration_that_broke_off_is_taken_up_again(mariadb_db: Database, sound: list[list[Any]], done: int) -> None:
    """Every statement that changes a schema is a transaction by itself: half of them may be there."""
    break_off(mariadb_db, done, sound)


@pytest.mark.nightly
def test_a_migration_that_broke_off_anywhere_is_taken_up_again(
    new_database: Callable[[str], Database], sound: list[list[Any]]
) -> None:
    for done in range(len(STATEMENTS) + 1):
        break_off(new_database("mariadb"), done, sound)


def test_the_printed_script_is_what_the_client_program_takes(mariadb_db: Database, server: Mariadb) -> None:
    client = find("mariadb-client", "mariadb", "mysql")
    done = subprocess.run(
        [client, "--no-defaults", "-h127.0.0.1", f"-P{server.port}", "-uperdure", mariadb_db.name],
        input=script("mysql").encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    try_open(mariadb_db.url, migrate=False)


def test_a_newer_schema_is_refused(mariadb_db: Database) -> None:
    try_open(mariadb_db.url)
    mariadb_db.execute("insert into schema_migration values (9999, 'later', 'x', 0)")
    with pytest.raises(SchemaTooNew):
        try_open(mariadb_db.url)


def test_a_database_of_somebody_else_is_refused(mariadb_db: Database) -> None:
    mariadb_db.execute("create table event (id int)")
    with pytest.raises(UsageError, match="'event' that perdure did not make"):
        try_open(mariadb_db.url)
    assert mariadb_db.execute("show tables") == [("event",)]


def test_without_leave_nothing_is_made(mariadb_db: Database) -> None:
    for options in ({"migrate": False}, {"create": False}, {"read_only": True}):
        with pytest.raises(UsageError):
            try_open(mariadb_db.url, **options)
    assert mariadb_db.execute("show tables") == []


def test_a_table_without_transactions_is_refused(mariadb_db: Database) -> None:
    try_open(mariadb_db.url)
    mariadb_db.execute("alter table refusal engine = MyISAM")
    with pytest.raises(UsageError, match="'refusal' is kept by MyISAM"):
        try_open(mariadb_db.url)


def test_a_table_that_takes_ids_for_the_same_is_refused(mariadb_db: Database) -> None:
    try_open(mariadb_db.url)
    mariadb_db.execute("alter table worker convert to character set utf8mb4 collate utf8mb4_general_ci")
    with pytest.raises(UsageError, match="'worker' has the collation utf8mb4_general_ci"):
        try_open(mariadb_db.url)


@pytest.mark.parametrize("version", ["10.5.20-MariaDB", "5.7.44", "8.0.16"])
def test_a_server_that_is_too_old_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match="is too old"):
        check({"version": version}, "host")


# ---- the log ----


def test_the_log_is_append_only(store: Store, mariadb_db: Database) -> None:
    author = Author("run-1", store.now())
    assert store.commit([author.create(), author.claimed("w")]) == [COMMITTED] * 2
    statements = ("update event set type = 'x'", "delete from event", "update event set payload = 'x' where seq = 1")
    for statement in statements:
        with pytest.raises(pymysql.err.IntegrityError, match="the log is append-only"):
            mariadb_db.execute(statement)
    with pytest.raises(pymysql.err.IntegrityError):
        mariadb_db.execute("delete from run")
    assert len(store.load("run-1")) == 2
    assert store.commit([author.completed(), author.purge()]) == [COMMITTED] * 2
    assert store.load("run-1") == []


# ---- what the server has to give ----


def test_no_durability_is_promised_that_the_server_does_not_give(servers: Servers) -> None:
    server = servers.mariadb(settings={"log_bin": "log", "sync_binlog": 1, "binlog_format": "ROW"})
    url = server.url(server.new_database())
    try_open(url)
    for name, worse, good in (
        ("innodb_flush_log_at_trx_commit", 2, 1),
        ("innodb_flush_log_at_trx_commit", 0, 1),
        ("sync_binlog", 0, 1),
    ):
        server.execute(f"set global {name} = {worse}")
        with pytest.raises(UsageError, match=f"durability 'host' is not what this server gives: {name} is {worse}"):
            try_open(url)
        try_open(server.url(server.new_database()), durability="process")
        server.execute(f"set global {name} = {good}")
    server.execute("set global binlog_format = STATEMENT")
    with pytest.raises(UsageError, match="binlog_format is STATEMENT"):
        try_open(url)


def test_every_way_to_lose_a_page_is_known() -> None:
    sound = {"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON", "log_bin": "OFF", "sync_binlog": "0"}
    assert problems(sound, "host") == []
    for name, value in (
        ("innodb_doublewrite", "OFF"), ("innodb_doublewrite", "DETECT_ONLY"), ("innodb_flush_method", "nosync"),
        ("innodb_force_recovery", "1"), ("innodb_flush_log_at_trx_commit", "0"),
    ):  # fmt: skip
        assert problems(sound | {name: value}, "host") == [f"{name} is {value}"]
        assert problems(sound | {name: value}, "process") == []


def test_quorum_needs_a_replica_that_is_waited_for() -> None:
    given = {"innodb_flush_log_at_trx_commit": "1", "log_bin": "ON", "sync_binlog": "1"}
    assert problems(given, "host") == []
    assert problems(given, "quorum") == ["semi-synchronous replication is off"]
    given |= {"rpl_semi_sync_master_enabled": "ON", "rpl_semi_sync_master_wait_point": "AFTER_COMMIT"}
    given |= {"rpl_semi_sync_master_timeout": "10000"}
    assert [problem.split()[0] for problem in problems(given, "quorum")] == [
        "rpl_semi_sync_master_wait_point", "rpl_semi_sync_master_timeout",
    ]  # fmt: skip
    given |= {"rpl_semi_sync_master_wait_point": "AFTER_SYNC", "rpl_semi_sync_master_timeout": "4294967295"}
    assert problems(given, "quorum") == []


@pytest.mark.parametrize(
    "version,comment,expected",
    [
        ("10.11.19-MariaDB-0+deb12u1", "Debian 12", ("MariaDB", (10, 11, 19))),
        ("5.5.5-10.6.1-MariaDB", "", ("MariaDB", (10, 6, 1))),
        ("8.0.36", "MySQL Community Server - GPL", ("MySQL", (8, 0, 36))),
        ("11.4.2", "mariadb.org binary distribution", ("MariaDB", (11, 4, 2))),
    ],
)
def test_servers_are_told_apart(version: str, comment: str, expected: tuple[str, tuple[int, ...]]) -> None:
    assert server_of({"version": version, "version_comment": comment}) == expected


# ---- places, rights, encryption ----


def test_a_user_needs_no_more_than_the_documented_rights(mariadb_db: Database, server: Mariadb) -> None:
    name = mariadb_db.name
    for user, rights in (
        ("keeper", "select, insert, update, delete, create, alter, index, references, trigger"),
        ("worker", "select, insert, update, delete"),
    ):
        server.execute(f"create or replace user {user}@'127.0.0.1' identified by 'secret'")
        server.execute(f"grant {rights} on {name}.* to {user}@'127.0.0.1'")
    worker, keeper = (mariadb_db.url.replace("perdure@", f"{user}:secret@") for user in ("worker", "keeper"))
    with pytest.raises(UsageError, match="lacks a right"):
        try_open(worker)
    store = open_store(keeper, StoreOptions())
    store.open()
    store.close()
    try_open(worker)
    store = open_store(worker, StoreOptions())
    store.open()
    author = Author("run-2", store.now())
    batch: list[Write] = [author.create(tags=(("a", "b"),)), author.claimed("w"), author.send(), author.completed()]
    assert store.commit([*batch, author.purge()]) == [COMMITTED] * 5
    assert store.sweep() == ["w"]
    facts = {fact.name: fact for fact in store.stats().facts}
    assert "PROCESS" in facts["oldest transaction"].value
    assert (facts["rights"].value, facts["rights"].problem) == ("all that are needed", "")
    store.close()


@pytest.mark.parametrize(
    "change,said",
    [
        (lambda url: url.replace("perdure@", "nobody-i-know:x@"), "Access denied"),
        (lambda url: url.replace("/test_", "/nosuch_"), "Unknown database"),
    ],
)
def test_what_will_never_work_is_said_at_once(mariadb_db: Database, change: Callable[[str], str], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        try_open(change(mariadb_db.url))
    assert "secret" not in str(caught.value)


def test_a_server_that_is_not_there_is_unavailable(servers: Servers) -> None:
    server = servers.mariadb()
    url = server.url(server.new_database())
    server.stop()
    with pytest.raises(StoreUnavailable):
        try_open(url)


def test_encrypted(servers: Servers, certificate: Certificate, tmp_path: Path) -> None:
    server = servers.mariadb(password="sésame:/@?", tls=certificate)
    authority = str(certificate.save_authority(tmp_path))
    for options in (
        {}, {"ssl_mode": "required"}, {"ssl_ca": authority}, {"ssl_mode": "verify_identity", "ssl_ca": authority},
    ):  # fmt: skip
        try_open(server.url(server.new_database(), port=None, **options))
    name = server.new_database()
    for mode in ("verify_ca", "verify_identity"):  # not vouched for by anybody the machine trusts
        with pytest.raises(StoreUnavailable):
            try_open(server.url(name, ssl_mode=mode))
    with pytest.raises((StoreUnavailable, UsageError)):
        try_open(server.url(name, ssl_mode="disabled"))


def test_connections_that_check_no_certificate_read_them_once(certificate: Certificate, tmp_path: Path) -> None:
    authority = certificate.save_authority(tmp_path)

    def context(options: str) -> ssl.SSLContext:
        connection: Any = Connection(**address(f"mysql://h/a{options}").parameters, defer_connect=True)
        made: ssl.SSLContext = connection.ctx
        return made

    assert context("") is context("")
    assert context("").verify_mode is ssl.CERT_NONE
    assert context(f"?ssl_ca={authority}").verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    "url",
    ["mysql://host", "mysql://host/", "mysql://host/a/b", "mysql://host:x/a", "mysql://h/a?ssl_mode=maybe",
     "mysql://h/a?charset=latin1", "mysql://h/a?ssl_ca=/no/such/file"],
)  # fmt: skip
def test_a_wrong_url_says_what_is_wrong(url: str) -> None:
    with pytest.raises(UsageError):
        address(url)


def test_a_url_is_taken_apart() -> None:
    found = address("mysql://us%40er:p%2Fw@[::1]:3307/my%20db?unix_socket=/run/x&ssl_mode=disabled")
    assert found.parameters == {
        "host": "::1", "port": 3307, "user": "us@er", "password": b"p/w", "database": "my db", "ssl_disabled": True,
        "unix_socket": "/run/x",
    }  # fmt: skip
    assert "p/w" not in found.shown
    assert "us" not in found.shown
    assert open_store("mariadb://h/a", StoreOptions()).capabilities.name == "mysql"
