"""The servers that other tests stand on: they start, die, come back, keep what they confirmed, and leave nothing."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psycopg
import pymysql
import pytest

from tests.house.tree import ROOT
from tests.process import Spawner
from tests.servers.certificate import Certificate
from tests.servers.fixtures import KINDS, Database, DatabaseServer, Servers
from tests.servers.guard import remove_segments
from tests.servers.postgres import USER, Postgres
from tests.servers.programs import MissingProgramError, find
from tests.servers.server import HOST, tree

SEGMENTS = Path("/proc/sysvipc/shm")
DOWN = (psycopg.OperationalError, pymysql.err.OperationalError)


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_each_test_has_an_empty_database(new_database: Callable[[str], Database], kind: str) -> None:
    one, two = new_database(kind), new_database(kind)
    assert one.server is two.server
    assert one.url != two.url
    for database in (one, two):
        database.execute("create table t (n int)")
        database.execute("insert into t values (1)")
        assert database.execute("select n from t") == [(1,)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_server_comes_back_with_what_it_confirmed(servers: Servers, kind: str) -> None:
    server = servers.start(kind)
    name = server.new_database()
    server.execute("create table t (n int)", database=name)
    server.execute("insert into t values (1)", database=name)
    connection = server.connect(name)
    processes = list(tree(server.pid))
    server.kill()
    connection.close()
    assert not any(map(exists, processes))
    with pytest.raises(DOWN):
        server.execute("select n from t", database=name)
    server.start()
    assert server.execute("select n from t", database=name) == [(1,)]
    server.restart()
    assert server.execute("select n from t", database=name) == [(1,)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_does_not_run_as_root_and_leaves_no_folder(servers: Servers, kind: str) -> None:
    server = servers.start(kind)
    assert Path(f"/proc/{server.pid}").stat().st_uid == (os.geteuid() or server.folder.stat().st_uid) > 0
    assert server.folder.is_dir()
    server.close()
    assert not server.folder.exists()
    server.close()


@pytest.mark.parametrize("kind", KINDS)
def test_durable_by_default(shared_servers: Callable[[str], DatabaseServer], kind: str) -> None:
    ask = shared_servers(kind).execute
    if kind == "mariadb":
        assert ask("select @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite") == [(1, 1)]
    else:
        assert ask("show fsync") + ask("show synchronous_commit") + ask("show full_page_writes") == [("on",)] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_paused_server_answers_nobody_until_it_goes_on(servers: Servers, kind: str) -> None:
    server = servers.start(kind)
    server.pause()
    # The system still takes the connection. PostgreSQL would answer the request for TLS, MariaDB would greet.
    with socket.create_connection((HOST, server.port)) as client:
        client.sendall(struct.pack(">II", 8, 80877103) if isinstance(server, Postgres) else b"")
        assert not select.select([client], [], [], 0.2)[0]
        server.resume()
        assert select.select([client], [], [], 10)[0]
    assert server.execute("select 1") == [(1,)]


@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_password_and_tls_are_demanded(servers: Servers, kind: str, certificate: Certificate) -> None:
    server = servers.start(kind, password="sesame:/@?", tls=certificate)
    assert server.execute("select 1") == [(1,)]
    with pytest.raises(DOWN):
        connect_in_the_clear(server)
    server.password = "wrong"
    with pytest.raises(DOWN):
        server.execute("select 1")


def connect_in_the_clear(server: DatabaseServer) -> None:
    if isinstance(server, Postgres):
        psycopg.connect(server.url(sslmode="disable"))
    else:
        pymysql.connect(host=HOST, port=server.port, user=USER, password=server.password or "", ssl_disabled=True)


def test_a_url_with_everything_in_it_is_understood(servers: Servers, certificate: Certificate, tmp_path: Path) -> None:
    server = servers.postgres(password="sésame:/@?", tls=certificate)
    authority = str(certificate.save_authority(tmp_path))
    with psycopg.connect(server.url(sslmode="verify-full", sslrootcert=authority)) as connection:
        assert connection.execute("select ssl from pg_stat_ssl where pid = pg_backend_pid()").fetchall() == [(True,)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_low_connection_limit(servers: Servers, kind: str) -> None:
    limits = {"max_connections": 10}
    if kind != "mariadb":
        limits |= {"superuser_reserved_connections": 0, "max_wal_senders": 0}
    server = servers.start(kind, settings=limits)
    with ExitStack() as stack:
        for _ in range(11 if kind == "mariadb" else 10):  # MariaDB has one more, for who may do everything
            stack.enter_context(server.connect())
        with pytest.raises(DOWN, match=r"[Tt]oo many"):
            server.connect()


@pytest.mark.parametrize("kind", KINDS)
def test_connections_are_cut_by_the_server(new_database: Callable[[str], Database], kind: str) -> None:
    database = new_database(kind)
    connection = database.server.connect(database.name)
    assert database.server.cut_connections(database.name) == 1
    with pytest.raises((psycopg.Error, pymysql.err.Error)), connection.cursor() as cursor:
        cursor.execute("select 1")
    if isinstance(connection, psycopg.Connection):
        connection.close()


def test_a_synchronous_standby_has_every_commit(servers: Servers) -> None:
    primary = servers.postgres()
    standby = servers.standby(primary)
    primary.execute("create table t (n int)")
    primary.execute("insert into t values (1)")
    primary.kill()
    standby.promote()
    assert standby.execute("select n from t") == [(1,)]
    standby.execute("insert into t values (2)")


def test_transaction_mode_keeps_no_session(servers: Servers, shared_servers: Callable[[str], DatabaseServer]) -> None:
    postgres = shared_servers("postgres")
    assert isinstance(postgres, Postgres)
    pooler = servers.pgbouncer(postgres, settings={"default_pool_size": 2})
    with psycopg.connect(pooler.url(), autocommit=True) as one, psycopg.connect(pooler.url()) as two:
        backend = "select pg_backend_pid()"
        first = one.execute(backend).fetchall()
        assert two.execute(backend).fetchall() == first
        assert one.execute(backend).fetchall() != first


def test_what_is_missing_fails_in_one_line(spawn: Spawner, tmp_path: Path) -> None:
    with pytest.raises(MissingProgramError, match=r"^nosuch is missing.*Install some-package \(Debian: [^\n]*\)$"):
        find("some-package", "nosuch")
    (tmp_path / "test_inner.py").write_text(
        "from __future__ import annotations\nfrom tests.servers import programs\n"
        "programs.mariadb = lambda: programs.find('mariadb-server', 'nosuch')\n"
        "def test_it(mariadb_db): ...\n"
    )
    argv = (sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", "-q")
    plain = ("-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path / "test_inner.py"))
    result = spawn(*argv, *plain, env={"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}, folder=ROOT).finish()
    assert result.code == 1
    assert "Install mariadb-server" in result.out
    assert "Traceback" not in result.out
    assert "1 error" in result.out


@pytest.mark.skipif(not SEGMENTS.exists(), reason="the system does not list its shared memory")
@pytest.mark.parametrize("kind", ["postgres", "postgres18"])
def test_a_killed_server_leaves_no_shared_memory(servers: Servers, kind: str) -> None:
    """There are 4,096 segments of it on a Linux: so many kills, and no PostgreSQL of the machine would start."""
    server = servers.start(kind)
    number = (server.folder / "data" / "postmaster.pid").read_text("ascii").splitlines()[6].split()[1]
    assert number in segments()
    mapped = Path(f"/proc/{server.pid}/maps").read_text("utf-8", "replace")
    assert "/dev/shm/PostgreSQL" not in mapped
    server.kill()
    assert number not in segments()
    server.start()
    assert server.execute("select 1") == [(1,)]


def segments() -> set[str]:
    return {line.split()[1] for line in SEGMENTS.read_text("ascii").splitlines()}


# ---- nothing is left running, however the process that started it ends ----

STARTS = """
import os, signal, sys
from tests.servers.fixtures import Servers
server = Servers().start(sys.argv[1])
server.connect()
print(server.pid, server._guard.pid, server.folder, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("victim", ["owner", "guard"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_outlives_a_killed_owner(spawn: Spawner, kind: str, victim: str) -> None:
    owner = spawn.python(STARTS, kind, env={"PYTHONPATH": str(ROOT)})
    server, guard, folder = owner.expect("/", 30).split()
    processes = list(tree(int(guard)))
    assert int(server) in processes
    waits = list(watch(processes))
    os.kill(int(guard) if victim == "guard" else owner.pid, signal.SIGKILL)
    ended = [ends(pidfd) for pidfd in waits]
    assert all(ended)
    if victim == "owner":
        assert not Path(folder).exists()
    else:
        owner.destroy()
        remove_segments(folder)
        shutil.rmtree(folder)


def watch(processes: list[int]) -> Iterator[int]:
    for pid in processes:
        with suppress(ProcessLookupError):  # a short-lived one has ended by itself
            yield os.pidfd_open(pid)


def ends(pidfd: int) -> bool:
    """Wait for the end of a process."""
    try:
        return bool(select.select([pidfd], [], [], 10)[0])
    finally:
        os.close(pidfd)
