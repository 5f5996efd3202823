"""Writes that can be repeated: guards for the application's own database, inside its own transactions.

Three ways, and one that is two of them:

* `once`: the request id. Seen before, the stored answer is returned.
* `insert`: the unique business key, such as order and step.
* `change`: the state check. A row is changed only if it is in the state it is expected in.
* `once` with a `Change`: the double guard.

Each takes a connection of sqlite3, apsw, psycopg, PyMySQL or Django, or SQLAlchemy's connection or session, with its
transaction open, and leaves commit and rollback to the caller. For async connections: ``async with guard.once(...)``,
``await guard.insert.aio(...)``, ``await guard.change.aio(...)``.
"""

from __future__ import annotations

from perdure.guard.request import Once, once
from perdure.guard.row import Change, change, insert
from perdure.guard.table import create_table, forget, schema

__all__ = ["Change", "Once", "change", "create_table", "forget", "insert", "once", "schema"]
