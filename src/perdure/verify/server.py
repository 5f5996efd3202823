"""The rows of a database server, read page by page in one snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from perdure.errors import SchemaTooNew, UsageError
from perdure.verify.evidence import Case, Fact, Grave, Standing
from perdure.verify.file import KNOWN_SCHEMA

Rows = Sequence[tuple[Any, ...]]
Ask = Callable[[str, Sequence[Any]], Rows]
"""(statement with ``%s`` for values, values) -> all rows. Always in the same snapshot."""
_RUNS_AT_ONCE = 500
_FACTS_AT_ONCE = 5_000
_FACT = "seq, type, op, kind, name, attempt, at, epoch, commit_id, state, digest, detail, input, payload, chain"


class ServerEvidence:
    """`perdure.verify.evidence.Evidence` of a snapshot.

    Args:
        ask: runs a statement.
        tables: what stands before the name of a table.
        tags: gives (run id, key, value) of every tag, and strays among them as ``None, key, value``.
    """

    def __init__(self, ask: Ask, tables: str, tags: str) -> None:
        self._ask = ask
        self._in = tables
        self._tags = tags

    def check_schema(self, place: str) -> None:
        """Refuse tables of another release.

        Raises:
            SchemaTooNew: a newer release has migrated them.
            UsageError: they are not complete.
        """
        last = self._ask(f"select max(number) from {self._in}schema_migration", ())[0][0]  # noqa: S608 - our own name
        if last is not None and last > KNOWN_SCHEMA:
            message = f"{place} has schema {last:04d}, this release knows {KNOWN_SCHEMA:04d}"
            raise SchemaTooNew(message)
        if last != KNOWN_SCHEMA:
            message = f"{place}: its schema is not complete"
            raise UsageError(message, hint="run `perdure migrate`")

    def damage(self) -> Iterator[str]:
        """Yield nothing: a server that finds damage refuses the read."""
        yield from ()

    def cases(self) -> Iterator[Case]:
        """Yield every run, in the order of ids."""
        waiting: defaultdict[str, list[int]] = defaultdict(list)
        for run_id, n in self._ask(f"select run_id, n from {self._in}inbox order by run_id, n", ()):  # noqa: S608
            waiting[run_id].append(n)
        tags: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        for run_id, key, value in self._ask(self._tags, ()):
            if run_id is not None:
                tags[run_id].add((key, value))
        last = ""
        columns = ", ".join(Standing._fields)
        page = f"select {columns} from {self._in}run where id > %s order by id limit {_RUNS_AT_ONCE}"  # noqa: S608
        while rows := self._ask(page, (last,)):
            last = rows[-1][0]
            present = {row[0] for row in rows}
            facts = groupby(self._facts(rows[0][0], last), key=itemgetter(0))
            logs = ((run_id, [Fact._make(fact[1:]) for fact in log]) for run_id, log in facts if run_id in present)
            log = next(logs, None)
            for row in map(Standing._make, rows):
                known: list[Fact] = []
                if log is not None and log[0] == row.id:
                    known, log = log[1], next(logs, None)
                yield Case(row, known, waiting.get(row.id, []), tags.get(row.id, set()))

    def _facts(self, first: str, last: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the logs of a range of ids: always from one that is known, as an index can find it."""
        head = f"select run_id, {_FACT} from {self._in}event where run_id"  # noqa: S608 - our own names
        more = f"{head} = %s and seq > %s order by seq limit {_FACTS_AT_ONCE}"
        following = f"{head} > %s and run_id <= %s order by run_id, seq limit {_FACTS_AT_ONCE}"
        rows = self._ask(more, (first, 0))
        while True:
            yield from rows
            if len(rows) == _FACTS_AT_ONCE:
                first, seq = rows[-1][0], rows[-1][1]
                rows = self._ask(more, (first, seq))
                continue
            if rows:
                first = rows[-1][0]
            rows = self._ask(following, (first, last))
            if not rows:
                return

    def graves(self) -> Iterator[Grave]:
        """Yield every tombstone."""
        for row in self._ask(f"select run_id, status from {self._in}request order by run_id", ()):  # noqa: S608
            yield Grave._make(row)

    def strays(self) -> Iterator[tuple[str, str]]:
        """Yield table and key of rows that belong to no run."""
        for table in ("event", "inbox"):
            sql = (
                f"select distinct run_id from {self._in}{table} as t"  # noqa: S608 - our own names
                f" where not exists (select 1 from {self._in}run as r where r.id = t.run_id)"
            )
            for (key,) in self._ask(sql, ()):
                yield table, str(key)
        for run_id, key, value in self._ask(self._tags, ()):
            if run_id is None:
                yield "tag", f"{key}={value}"
