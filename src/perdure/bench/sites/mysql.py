"""Databases of their own on a MySQL or MariaDB server; they are dropped at the end."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pymysql

from perdure.bench.figure import Mark, Marks
from perdure.bench.site import SCRATCH
from perdure.errors import UsageError
from perdure.store.mysql.address import address

if TYPE_CHECKING:
    from collections.abc import Sequence

_INSERT = "insert into floor (body) values (%s)"
_MARKS = Marks(sequence=Mark(2.5))


def open_site(url: str, folder: Path) -> MysqlSite:
    """Return databases beside the one that ``url`` names."""
    return MysqlSite(url, folder)


class MysqlSite:
    """`perdure.bench.site.Site`."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder: Path = folder
        self.marks: Marks = _MARKS
        self._url = url
        self._where = address(url)
        inside = [part for part in (folder, *folder.parents) if part.name.startswith(SCRATCH)]
        whole = inside[-1] if inside else folder
        self._prefix = f"perdure_bench_{blake2b(str(whole).encode(), digest_size=4).hexdigest()}"
        if folder != whole:
            self._prefix += f"_{folder.name}"

    def _connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        parameters = {**self._where.parameters, "database": database}
        try:
            return pymysql.connect(**parameters, charset="utf8mb4", autocommit=True)
        except pymysql.err.Error as error:
            message = f"cannot measure in {self._where.shown}: {error.args[-1]}"
            raise UsageError(message) from None

    def _make(self, name: str) -> str:
        database = f"{self._prefix}_{name}".replace("-", "_")
        try:
            with self._connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"create database if not exists {database}")
        except pymysql.err.Error as error:
            message = f"cannot make a database to measure in: {error.args[-1]}"
            raise UsageError(message, hint="grant all on `perdure\\_bench\\_%`.* to the user") from None
        return database

    def url(self, name: str) -> str:
        """Return the URL of a database, which is made if it is not there."""
        return urlsplit(self._url)._replace(path=f"/{self._make(name)}").geturl()

    def count(self, name: str, kind: str) -> int:
        """Count events."""
        with self._connect(self._make(name)) as connection, connection.cursor() as cursor:
            cursor.execute("select count(*) from event where type = %s", (kind,))
            row = cursor.fetchone()
        return int(row[0]) if row else 0

    def stored(self, name: str) -> tuple[int, int]:
        """Return rows and bytes."""
        with self._connect(self._make(name)) as connection, connection.cursor() as cursor:
            cursor.execute("analyze table event, run")
            cursor.execute("select (select count(*) from event) + (select count(*) from run)")
            rows = cursor.fetchone() or (0,)
            cursor.execute(
                "select sum(data_length + index_length) from information_schema.tables"
                " where table_schema = database() and table_name in ('event', 'run')"
            )
            size = cursor.fetchone() or (0,)
        return int(rows[0]), int(size[0])

    def bare(self) -> BareMysql:
        """Connect to a database of its own."""
        return BareMysql(self._connect(self._make("floor")))

    def clear(self) -> None:
        """Drop what was made."""
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute("show databases")
            for (name,) in cursor.fetchall():
                if name.startswith(self._prefix):
                    cursor.execute(f"drop database {name}")


class BareMysql:
    """`perdure.bench.site.Bare`."""

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._cursor.execute(
            "create table if not exists floor (id bigint not null auto_increment primary key, body blob not null)"
            " engine = innodb"
        )

    def insert(self, row: bytes) -> None:
        """Commit one row."""
        self._cursor.execute(_INSERT, (row,))  # a transaction of its own

    def insert_all(self, rows: Sequence[bytes]) -> None:
        """Commit many rows, as one statement."""
        self._cursor.executemany(_INSERT, [(row,) for row in rows])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
