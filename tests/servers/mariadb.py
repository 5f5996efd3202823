"""A private MariaDB server."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pymysql

from tests.servers import programs
from tests.servers.certificate import Certificate
from tests.servers.server import HOST, LOOK_S, PATIENCE_S, Server, ServerError, run_lowered

USER = "perdure"
SETTINGS: Mapping[str, str | int] = {
    "innodb_buffer_pool_size": "64M",
    "innodb_log_file_size": "32M",
    "skip_name_resolve": "on",
}
# A primary that confirms a commit only once a standby has it.
PRIMARY: Mapping[str, str | int] = {
    "server_id": 1,
    "log_bin": "log",
    "binlog_format": "ROW",
    "sync_binlog": 1,
    "rpl_semi_sync_master_enabled": "ON",
    "rpl_semi_sync_master_wait_point": "AFTER_SYNC",
    "rpl_semi_sync_master_timeout": 86_400_000,
}
REPLICA: Mapping[str, str | int] = {
    "server_id": 2,
    "log_bin": "log",
    "binlog_format": "ROW",
    "sync_binlog": 1,
    "read_only": "ON",
    "rpl_semi_sync_slave_enabled": "ON",
}


class Mariadb(Server):
    """One server with one user who may do everything. Durable, as MariaDB is by default."""

    def __init__(
        self,
        *,
        settings: Mapping[str, str | int] | None = None,
        password: str | None = None,
        tls: Certificate | None = None,
    ) -> None:
        """Set up, not yet started.

        Args:
            settings: options of the server, for instance ``{"max_connections": 8}``.
            password: the user's. None lets everybody on loopback in.
            tls: offer TLS and refuse connections without it.
        """
        self.program = programs.mariadb()
        super().__init__()
        self.password, self.tls = password, tls
        self.data, self.temporary = self.folder / "data", self.folder / "tmp"
        self._numbers = itertools.count(1)
        self._settings = dict(SETTINGS) | dict(settings or {})
        try:
            self._initialise()
        except BaseException:
            self.close()
            raise

    def _initialise(self) -> None:
        words = ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        size = f"--innodb-log-file-size={self._settings['innodb_log_file_size']}"
        # Its own folder for temporary files: a server deletes what it finds in there, others' too, when it starts.
        self.temporary.mkdir()
        self.own(self.temporary)
        environment = {"TMPDIR": str(self.temporary)}
        run_lowered(programs.mariadb_install(), *words, size, f"--datadir={self.data}", env=environment)
        if self.tls is not None:
            certificate, key = self.write("server.crt", self.tls.certificate), self.write("server.key", self.tls.key)
            self._settings |= {"ssl_cert": str(certificate), "ssl_key": str(key), "require_secure_transport": "on"}
        secret = "" if self.password is None else f" identified by '{self.password}'"
        # Executed on every start, and good for all of them.
        first = f"set sql_log_bin = 0;\nset names utf8mb4;\ncreate user if not exists {USER}@'{HOST}'{secret};\n"
        self.write("first.sql", f"{first}grant all on *.* to {USER}@'{HOST}' with grant option;\n")

    def command(self) -> Sequence[str | Path]:
        fixed = {
            "datadir": self.data,
            "tmpdir": self.temporary,
            "socket": self.folder / "socket",
            "pid_file": self.folder / "pid",
            "bind_address": HOST,
            "port": self.port,
            "init_file": self.folder / "first.sql",
        }
        return [
            self.program,
            "--no-defaults",
            *(f"--{name.replace('_', '-')}={value}" for name, value in (fixed | self._settings).items()),
        ]

    def url(self, database: str = "mysql", *, port: int | None = None, **query: str) -> str:
        """Give the URL of a database of this server, or of the same behind another port."""
        user = USER if self.password is None else f"{USER}:{quote(self.password, safe='')}"
        tail = f"?{urlencode(query)}" if query else ""
        return f"mysql://{user}@{HOST}:{port or self.port}/{database}{tail}"

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        """Give a connection of the user who may do everything. It commits each statement by itself."""
        return pymysql.connect(
            host=HOST,
            port=self.port,
            user=USER,
            password=(self.password or "").encode(),
            database=database,
            autocommit=True,
            connect_timeout=10,
            # Not left to the driver, which reads the system's certificates for each connection, to check none.
            ssl_disabled=self.tls is None,
            ssl={"check_hostname": False} if self.tls is not None else None,
        )

    def execute(
        self, statement: str, parameters: Sequence[object] | None = None, *, database: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Execute one statement by itself. Give its rows."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    def answers(self) -> bool:
        try:
            self.connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def new_database(self) -> str:
        """Make an empty database. Give its name."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"create database {name}")
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database. Connections to it stay, and find it gone."""
        self.execute(f"drop database if exists {name}")

    # ---- a second server that follows this one ----

    def new_standby(self) -> Mariadb:
        """Start a server that has every transaction of this one before it is confirmed. Start this one with `PRIMARY`.

        What was made before is not copied: make databases afterwards.
        """
        standby = Mariadb(settings=REPLICA, password=self.password)
        try:
            standby.start()
            standby.execute(
                "change master to master_host = %s, master_port = %s, master_user = %s, master_password = %s,"
                " master_use_gtid = slave_pos, master_connect_retry = 1",
                (HOST, self.port, USER, self.password or ""),
            )
            standby.execute("start slave")
            self._await_standby()
        except BaseException:
            standby.close()
            raise
        return standby

    def _await_standby(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        query = "show status like 'Rpl_semi_sync_master_clients'"
        while self.execute(query) != [("Rpl_semi_sync_master_clients", "1")]:
            if time.monotonic() > deadline or self._ended_within(LOOK_S):
                message = f"no standby connected\n{self.log[-4000:]}"
                raise ServerError(message)

    def promote(self) -> None:
        """Make a standby a server that takes writes, once it has done all it was sent."""
        deadline = time.monotonic() + PATIENCE_S
        self.execute("stop slave io_thread")
        idle = "select 1 from information_schema.processlist where state like 'Slave has read all relay log%%'"
        while not self.execute(idle):
            if time.monotonic() > deadline or self._ended_within(LOOK_S):
                message = f"the standby cannot apply what it was sent\n{self.log[-4000:]}"
                raise ServerError(message)
        self.execute("stop slave")
        self.execute("reset slave all")
        self.execute("set global read_only = off")

    def backends(self, database: str) -> list[int]:
        """Give the ids of the connections to a database."""
        rows = self.execute("select id from information_schema.processlist where db = %s", [database])
        return [number for (number,) in rows]

    def cut_connections(self, database: str) -> int:
        """End every connection to a database in the server's own way. Give how many there were."""
        found = self.backends(database)
        for number in found:
            try:
                self.execute(f"kill connection {number}")
            except pymysql.err.OperationalError:  # it ended by itself
                continue
        return len(found)
