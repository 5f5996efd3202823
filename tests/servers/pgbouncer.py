"""A private PgBouncer in front of a PostgreSQL server."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg

from tests.servers import programs
from tests.servers.postgres import USER, Postgres
from tests.servers.server import HOST, Server

SETTINGS: Mapping[str, str | int] = {
    "auth_type": "trust",
    "pool_mode": "transaction",
    "max_client_conn": 200,
    "default_pool_size": 10,
    "unix_socket_dir": "",
    "listen_addr": HOST,
    "ignore_startup_parameters": "extra_float_digits",
}


class Pgbouncer(Server):
    """Transaction mode: a client keeps no session of its own between two transactions."""

    stop_signal = signal.SIGTERM

    def __init__(self, postgres: Postgres, *, settings: Mapping[str, str | int] | None = None) -> None:
        self.program = programs.pgbouncer()
        super().__init__()
        self.postgres = postgres
        try:
            users = self.write("users", f'"{USER}" "{postgres.password or ""}"\n')
            lines = dict(SETTINGS) | {"listen_port": self.port, "auth_file": str(users)} | dict(settings or {})
            target = f"* = host={HOST} port={postgres.port}"
            text = "".join(f"{name} = {value}\n" for name, value in lines.items())
            self.config = self.write("pgbouncer.ini", f"[databases]\n{target}\n[pgbouncer]\n{text}")
        except BaseException:
            self.close()
            raise

    def command(self) -> Sequence[str | Path]:
        return [self.program, "-q", self.config]

    def url(self, database: str = "postgres", **query: str) -> str:
        """Give the URL of a database behind this pooler."""
        return self.postgres.url(database, port=self.port, **query)

    def answers(self) -> bool:
        try:
            target = f"host={HOST} port={self.port} user={USER} dbname=postgres"
            psycopg.connect(target, autocommit=True, connect_timeout=10).close()
        except psycopg.OperationalError:
            return False
        return True
