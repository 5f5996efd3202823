"""A shelf on a database server: the same two lives, on a database that is emptied between them."""

from __future__ import annotations

from pathlib import Path

from perdure.store.base import Store, StoreOptions, open_store
from perdure.verify.database import verify
from perdure.verify.examination import Report
from tests.faults.lives import RUN_ID, Shelf
from tests.servers.fixtures import Database
from tests.servers.postgres import Postgres

# In this order, so that no row is left behind without what it belongs to. A log may be deleted once its run has a
# tombstone.
EMPTY = (
    "insert into request select id, workflow, 0, 'completed', 0, null, null from run",
    *(f"delete from {table}" for table in ("event", "inbox", "tag", "run", "request", "worker")),
)


class ServerShelf(Shelf):
    """See the module."""

    def __init__(self, kind: str, database: Database) -> None:
        super().__init__(kind, Path())
        self._database = database

    def store(self) -> Store:
        """Return what a process start would open."""
        return open_store(self._database.url, StoreOptions())

    def _execute(self, statement: str) -> None:
        """Execute a statement on our tables."""
        if isinstance(self._database.server, Postgres):
            statement = f"set search_path to perdure; {statement}"
        self._database.execute(statement)

    def time_passes(self) -> None:
        """Let the leases of all who are silent end."""
        self._execute("update worker set expires_at = 0")
        store = self.store()
        store.open()
        store.sweep()
        store.close()

    def examine(self) -> Report:
        """Check every invariant."""
        return verify(self._database.url, [RUN_ID])

    def empty(self) -> None:
        """Forget everything that ran here."""
        for statement in EMPTY:
            self._execute(statement)
