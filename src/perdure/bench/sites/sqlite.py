"""Files in the folder, with ``synchronous=FULL``."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from perdure.bench.figure import Mark, Marks

if TYPE_CHECKING:
    from collections.abc import Sequence

_INSERT = "insert into floor (body) values (?)"
_MARKS = Marks(
    steps=Mark(4, 6), processor=Mark(40, 25), sequence=Mark(2, 1.3), latency=Mark(5, 3.5), starts=Mark(20_000)
)


def open_site(_url: str, folder: Path) -> SqliteSite:
    """Return files in ``folder``."""
    return SqliteSite(folder)


class SqliteSite:
    """`perdure.bench.site.Site`."""

    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder
        self.marks: Marks = _MARKS

    def url(self, name: str) -> str:
        """Return a file's URL."""
        return f"sqlite:///{self.folder / name}.db"

    def count(self, name: str, kind: str) -> int:
        """Count events, with the engine closed."""
        with closing(sqlite3.connect(self.folder / f"{name}.db")) as connection:
            return int(connection.execute("select count(*) from event where type = ?", (kind,)).fetchone()[0])

    def stored(self, name: str) -> tuple[int, int]:
        """Return rows, and bytes of the file, with the engine closed."""
        with closing(sqlite3.connect(self.folder / f"{name}.db")) as connection:
            rows = connection.execute("select (select count(*) from event_log) + (select count(*) from run)").fetchone()
            size = connection.execute("select * from pragma_page_count, pragma_page_size").fetchone()
        return int(rows[0]), int(size[0]) * int(size[1])

    def bare(self) -> BareSqlite:
        """Connect to a file of its own."""
        return BareSqlite(self.folder / "floor.db")

    def clear(self) -> None:
        """Leave it to whoever removes the folder."""


class BareSqlite:
    """`perdure.bench.site.Bare`."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute("pragma synchronous = full")
        self._connection.execute("create table if not exists floor (id integer primary key, body blob not null) strict")
        self._cursor = self._connection.cursor()

    def insert(self, row: bytes) -> None:
        """Commit one row."""
        self._cursor.execute(_INSERT, (row,))  # a transaction of its own

    def insert_all(self, rows: Sequence[bytes]) -> None:
        """Commit many rows."""
        self._cursor.execute("begin immediate")
        self._cursor.executemany(_INSERT, [(row,) for row in rows])
        self._cursor.execute("commit")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
