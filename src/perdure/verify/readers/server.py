"""What the readers of database servers share: every query is asked inside one snapshot, and its rows come one by one.

Runs are taken a page at a time, in the order of their ids, and their logs in one query per page in the order of the
log's key: the server sorts nothing, and nothing is kept here but a page of rows and the log of one run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from perdure.verify.evidence import CHANGES, LANES, QUEUES, SLOTS, Case, Fact, Grave, QueueFacts, Standing, queue_facts

Query = Callable[[str, Sequence[Any]], Iterator[tuple[Any, ...]]]
"""(statement with %s for values, values) -> rows. One at a time: the last one is read to its end, or closed."""
_RUNS = """
    select
        id, status, wake_at, owner, epoch, inbox_n, tags, created_at, updated_at, queue, workflow, priority,
        partition_key, version_id
    from run
    where id > %s order by id limit 500
"""
_FACTS = """
    select run_id, seq, type, op, kind, name, attempt, at, epoch, commit_id, state, digest, detail, input, payload,
        chain
    from event where run_id in ({}) order by run_id, seq
"""
_INBOX = "select run_id, n from inbox where run_id in ({}) order by run_id, n"
_STRAYS = "select distinct c.run_id from {} as c where not exists (select 1 from run as r where r.id = c.run_id)"


_SLACK_US = 15_000
"""How far a worker's clock may be ahead of the server's.

A claim that counts bears the server's own time, asked for after the slots were counted: what freed a slot that it found
free was recorded before. The end of a run bears its worker's idea of the server's time. That is behind by the way of an
answer. It is ahead only by what the worker's clock gains on the server's after the reading it goes by, which is at most
70 s old (`perdure.store.server.clock`: kept for 60 s, renewed after 10). Two quartz clocks that NTP keeps differ by
less than 200 millionths: 14 ms. On one machine both are one clock, and the bound is 0.
"""


class ServerEvidence:
    """`perdure.verify.evidence.Evidence` of one snapshot of a server.

    Args:
        query: asks the server.
        tags: statement with run id, key and value of the tags of the runs in ``({})``.
        stray_tags: statement with the keys of tags that belong to no run.
        change: how the column of `queue_change` is named that says what was changed.
    """

    slack_us = _SLACK_US

    def __init__(self, query: Query, tags: str, stray_tags: str, change: str = "change") -> None:
        self._change = change
        self._query = query
        self._tags = tags
        self._strays = {
            "event": _STRAYS.format("event"), "inbox": _STRAYS.format("inbox"), "tag": stray_tags,
            "slot": _STRAYS.format("slot"), "deduplication": _STRAYS.format("deduplication"),
        }  # fmt: skip

    def damage(self) -> Iterator[str]:
        """Yield nothing: what a server finds wrong with its files it says by itself, when they are read."""
        return iter(())

    def cases(self) -> Iterator[Case]:
        """Yield every run, in the order of their ids."""
        last = ""
        while rows := [Standing._make(row) for row in self._query(_RUNS, (last,))]:
            last = rows[-1].id
            ids = [row.id for row in rows]
            waiting: defaultdict[str, list[int]] = defaultdict(list)
            for run_id, n in self._of(_INBOX, ids):
                waiting[run_id].append(n)
            tags: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
            for run_id, key, value in self._of(self._tags, ids):
                tags[run_id].add((key, value))
            logs = groupby(self._of(_FACTS, ids), key=itemgetter(0))
            run_id, log = next(logs, ("", iter(())))
            for row in rows:
                facts = [Fact._make(fact[1:]) for fact in log] if run_id == row.id else []
                if run_id == row.id:
                    run_id, log = next(logs, ("", iter(())))
                yield Case(row, facts, waiting.get(row.id, []), tags.get(row.id, set()))

    def _of(self, sql: str, ids: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        return self._query(sql.format(", ".join(["%s"] * len(ids))), ids)

    def graves(self) -> Iterator[Grave]:
        """Yield every tombstone."""
        return map(Grave._make, self._query("select run_id, status from request order by run_id", ()))

    def strays(self) -> Iterator[tuple[str, str]]:
        """Yield table and key of rows that belong to no run."""
        for table, sql in self._strays.items():
            for (key,) in self._query(sql, ()):
                yield table, str(key)

    def queues(self) -> Iterator[QueueFacts]:
        """Yield the queues that have settings."""
        changes = list(self._query(CHANGES.format(self._change), ()))
        return queue_facts(list(self._query(QUEUES, ())), changes)

    def slots(self) -> Iterator[tuple[str, int]]:
        """Yield run id and epoch of every slot."""
        yield from self._query(SLOTS, ())

    def rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement without values."""
        return self._query(sql, ())

    def lanes(self) -> Iterator[tuple[str, str, int, str]]:
        """Yield every line of runs with a partition key."""
        yield from self._query(LANES, ())
