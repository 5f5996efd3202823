"""A private PostgreSQL server."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg

from tests.servers.certificate import Certificate
from tests.servers.server import HOST, LOOK_S, PATIENCE_S, Server, ServerError, run_lowered

USER = "perdure"
SETTINGS: Mapping[str, str | int] = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "dynamic_shared_memory_type": "mmap",  # files of the server's own folder: those of `posix` outlive a killed one
    "max_wal_size": "256MB",
    "log_checkpoints": "off",
}

DOOMED = 4
"""So many databases of a shared server wait to be dropped."""


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


class Postgres(Server):
    """One cluster with one superuser. Durable, as PostgreSQL is by default."""

    stop_signal = signal.SIGINT  # the "fast" shutdown; SIGTERM would wait for clients

    def __init__(
        self,
        programs: Path,
        *,
        settings: Mapping[str, str | int] | None = None,
        password: str | None = None,
        tls: Certificate | None = None,
        copy_of: Postgres | None = None,
    ) -> None:
        """Set up, not yet started.

        Args:
            programs: the folder of `initdb` and `postgres`.
            settings: lines of postgresql.conf, for instance ``{"max_connections": 8}``.
            password: the superuser's. None trusts everybody on loopback.
            tls: offer TLS and refuse connections without it.
            copy_of: become a standby of that server.
        """
        super().__init__()
        self.password, self.tls = password, tls
        self.is_shared = False
        """Many tests make databases here: for that it keeps a connection."""
        self._kept: psycopg.Connection[tuple[Any, ...]] | None = None
        self._doomed: list[str] = []
        self.programs = self._reachable(programs)
        self.data = self.folder / "data"
        self._numbers = itertools.count(1)
        try:
            if copy_of is None:
                self._initialise()
            else:
                self._copy(copy_of)
            self._configure(settings or {})
        except BaseException:
            self.close()
            raise

    def _reachable(self, programs: Path) -> Path:
        """Give a folder with the same programs, which the user that the server runs as may enter.

        Servers check that they may read their programs. The right to read everything does not count there.
        """
        if os.geteuid() or all(folder.stat().st_mode & 1 for folder in programs.parents):
            return programs
        package = programs.parents[1]
        for tree in (package, package.with_name(f"{package.name}.libs")):
            shutil.copytree(tree, self.folder / tree.name, copy_function=_link)
        return self.folder / programs.relative_to(package.parent)

    def _initialise(self) -> None:
        # Not synced, because a new cluster that is lost is made again. What the server writes later is synced.
        words = ["--no-sync", "--no-instructions", "--no-locale", "--encoding=UTF8", "--auth=trust"]
        if self.password is not None:
            words += [f"--pwfile={self.write('password', self.password)}", "--auth-host=scram-sha-256"]
        run_lowered(self.programs / "initdb", "-D", self.data, "-U", USER, *words)

    def _copy(self, primary: Postgres) -> None:
        words = ["--wal-method=stream", "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
        target = f"{primary.conninfo()} application_name=standby"
        run_lowered(self.programs / "pg_basebackup", "-D", self.data, "-d", target, *words)

    def _configure(self, settings: Mapping[str, str | int]) -> None:
        lines = dict(SETTINGS) | {"port": self.port} | dict(settings)
        if self.tls is not None:
            certificate, key = self.write("server.crt", self.tls.certificate), self.write("server.key", self.tls.key)
            lines |= {"ssl": "on", "ssl_cert_file": str(certificate), "ssl_key_file": str(key)}
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in lines.items())
        method = "trust" if self.password is None else "scram-sha-256"
        kind = "host" if self.tls is None else "hostssl"
        access = "".join(f"{kind} {what} all {HOST}/32 {method}\n" for what in ("all", "replication"))
        (self.data / "pg_hba.conf").write_text(access, "utf-8")

    def command(self) -> Sequence[str | Path]:
        return [self.programs / "postgres", "-D", self.data]

    def conninfo(self, database: str = "postgres") -> str:
        password = "" if self.password is None else f" password='{self.password}'"
        return f"host={HOST} port={self.port} user={USER} dbname={database}{password}"

    def url(self, database: str = "postgres", *, port: int | None = None, **query: str) -> str:
        """Give the URL of a database of this server, or of the same behind another port."""
        user = USER if self.password is None else f"{USER}:{quote(self.password, safe='')}"
        tail = f"?{urlencode(query)}" if query else ""
        return f"postgresql://{user}@{HOST}:{port or self.port}/{database}{tail}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        """Give a connection of the superuser that commits each statement by itself."""
        return psycopg.connect(self.conninfo(database), autocommit=True, connect_timeout=10)

    def execute(
        self,
        statement: str,
        parameters: Sequence[object] | None = None,
        *,
        database: str = "postgres",
        schema: str = "public",
    ) -> list[tuple[Any, ...]]:
        """Execute one statement as superuser, by itself. Give its rows."""
        conninfo = f"{self.conninfo(database)} options='-c search_path={schema}'"
        with psycopg.connect(conninfo, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def new_database(self, template: str = "template1") -> str:
        """Make a database, equal to the template and empty otherwise. Give its name."""
        name = f"test_{next(self._numbers)}"
        # As files: by way of the log, which is how it is done else, making and dropping one takes twice the time.
        self._administer(f"create database {name} template {template} strategy file_copy")
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is connected to it. A server that is shared does so some databases later.

        By then its connections have ended: for one that is just ending, the server would wait 0.1 s.
        """
        self._doomed.append(name)
        while len(self._doomed) > (DOOMED if self.is_shared else 0):
            self._administer(f"drop database if exists {self._doomed.pop(0)} with (force)")

    def _administer(self, statement: str) -> None:
        if not self.is_shared:
            self.execute(statement)
            return
        if self._kept is None or self._kept.closed:
            self._kept = self.connect()
        self._kept.execute(statement)

    def close(self) -> None:
        """Kill the server and delete its folder. May be called twice."""
        if self._kept is not None:
            self._kept.close()
        super().close()

    def backends(self, database: str) -> list[int]:
        """Give the process ids of the connections to a database: to kill one of them."""
        rows = self.execute("select pid from pg_stat_activity where datname = %s", [database])
        return [pid for (pid,) in rows if isinstance(pid, int)]

    def cut_connections(self, database: str) -> int:
        """End every connection to a database in the server's own way. Give how many there were."""
        rows = self.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [database])
        return len(rows)

    # ---- a second server that follows this one ----

    def new_standby(self, *, synchronous: bool = True) -> Postgres:
        """Start a standby. A synchronous one has every commit before the primary confirms it."""
        standby = Postgres(self.programs, password=self.password, tls=self.tls, copy_of=self)
        try:
            standby.start()
            if synchronous:
                self.execute("alter system set synchronous_standby_names = 'standby'")
                self.execute("select pg_reload_conf()")
            self._await_standby("sync" if synchronous else "async")
        except BaseException:
            standby.close()
            raise
        return standby

    def _await_standby(self, state: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        query = "select count(*) from pg_stat_replication where state = 'streaming' and sync_state = %s"
        while self.execute(query, [state]) != [(1,)]:
            if time.monotonic() > deadline or self._ended_within(LOOK_S):
                message = f"no standby became {state}\n{self.log[-4000:]}"
                raise ServerError(message)

    def promote(self) -> None:
        """Make a standby a server that takes writes."""
        self.execute("select pg_promote()")
