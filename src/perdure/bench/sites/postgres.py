"""Schemas of a database on a PostgreSQL server; they are dropped at the end."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from perdure.bench.figure import Mark, Marks
from perdure.bench.site import SCRATCH
from perdure.errors import UsageError
from perdure.model.url import shown_url
from perdure.store.postgres.address import address

if TYPE_CHECKING:
    from collections.abc import Sequence

_MARKS = Marks(steps=Mark(4), sequence=Mark(2.5))


def open_site(url: str, folder: Path) -> PostgresSite:
    """Return schemas of the database that ``url`` names."""
    return PostgresSite(url, folder)


class PostgresSite:
    """`perdure.bench.site.Site`."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder: Path = folder
        self.marks: Marks = _MARKS
        self._url = url.partition("?")[0]
        self._options = url.partition("?")[2]
        self._parameters: dict[str, Any] = dict(address(url).parameters)
        inside = [part for part in (folder, *folder.parents) if part.name.startswith(SCRATCH)]
        whole = inside[-1] if inside else folder
        self._prefix = f"perdure_bench_{blake2b(str(whole).encode(), digest_size=4).hexdigest()}"
        if folder != whole:
            self._prefix += f"_{folder.name}"

    def _connect(self) -> psycopg.Connection[Any]:
        try:
            return psycopg.connect(autocommit=True, **self._parameters)
        except psycopg.OperationalError as error:
            message = f"cannot measure in {shown_url(self._url)}: {str(error).splitlines()[0]}"
            raise UsageError(message) from None

    def _schema(self, name: str) -> str:
        return f"{self._prefix}_{name}".replace("-", "_")

    def url(self, name: str) -> str:
        """Return the URL of a schema."""
        others = [part for part in self._options.split("&") if part and not part.startswith("schema=")]
        return f"{self._url}?{'&'.join([*others, f'schema={self._schema(name)}'])}"

    def count(self, name: str, kind: str) -> int:
        """Count events."""
        query = sql.SQL("select count(*) from {} where type = %s").format(sql.Identifier(self._schema(name), "event"))
        with self._connect() as connection:
            row = connection.execute(query, (kind,)).fetchone()
        return int(row[0]) if row else 0

    def stored(self, name: str) -> tuple[int, int]:
        """Return rows and bytes."""
        log, run = (sql.Identifier(self._schema(name), table) for table in ("event", "run"))
        query = sql.SQL(
            "select (select count(*) from {log}) + (select count(*) from {run}),"
            " pg_total_relation_size({log_name}) + pg_total_relation_size({run_name})"
        ).format(log=log, run=run, log_name=log.as_string(), run_name=run.as_string())
        with self._connect() as connection:
            row = connection.execute(query).fetchone() or (0, 0)
        return int(row[0]), int(row[1])

    def bare(self) -> BarePostgres:
        """Connect to a schema of its own."""
        return BarePostgres(self._connect(), self._schema("floor"))

    def clear(self) -> None:
        """Drop what was made."""
        with self._connect() as connection:
            names = connection.execute(
                "select nspname from pg_catalog.pg_namespace where starts_with(nspname, %s)", (self._prefix,)
            ).fetchall()
            for (name,) in names:
                connection.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(name)))


class BarePostgres:
    """`perdure.bench.site.Bare`."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        table = sql.Identifier(schema, "floor")
        connection.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
        connection.execute(
            sql.SQL("create table if not exists {} (id bigserial primary key, body bytea not null)").format(table)
        )
        self._insert = sql.SQL("insert into {} (body) values (%b)").format(table)

    def insert(self, row: bytes) -> None:
        """Commit one row, by a prepared statement."""
        self._connection.execute(self._insert, (row,), prepare=True)  # a transaction of its own

    def insert_all(self, rows: Sequence[bytes]) -> None:
        """Commit many rows."""
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(self._insert, [(row,) for row in rows])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
