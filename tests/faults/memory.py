"""What `perdure.verify` reads, taken from a store in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure.store.memory import MemoryStore
from perdure.verify.evidence import SETTINGS, Case, Fact, Grave, QueueFacts, Standing
from perdure.verify.versions import ALIASES, BLOBS, LABELS, RECORD, RELEASES, ROUTES, SIGNATURES, UPGRADES, VERSIONS


class MemoryEvidence:
    """`perdure.verify.evidence.Evidence` of a store in memory."""

    slack_us = 0

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def damage(self) -> Iterator[str]:
        yield from ()

    def cases(self) -> Iterator[Case]:
        for row in self._store._runs.values():
            standing = Standing(
                row.id,
                row.status,
                row.wake_at,
                row.owner,
                row.epoch,
                row.inbox_n,
                row.tags,
                row.created_at,
                row.updated_at,
                row.queue,
                row.workflow,
                row.priority,
                row.partition_key,
                row.version_id,
            )
            facts = [Fact._make(event[1:]) for event in self._store._events[row.id]]
            inbox = [message.n for message in self._store._inbox[row.id]]
            yield Case(standing, facts, inbox, set(self._store._tags[row.id]))

    def graves(self) -> Iterator[Grave]:
        for tombstone in self._store._tombstones.values():
            yield Grave(tombstone.run_id, tombstone.status)

    def queues(self) -> Iterator[QueueFacts]:
        lines = self._store._lines
        for name, row in lines._rows.items():
            changes = [(change.n, change.at, change.change) for change in lines._changes[name]]
            yield QueueFacts(name, {one: getattr(row, one) for one in SETTINGS}, row.changed_at, row.changes, changes)

    def slots(self) -> Iterator[tuple[str, int]]:
        yield from self._store._lines._slots.items()

    def lanes(self) -> Iterator[tuple[str, str, int, str]]:
        for row in self._store._runs.values():  # it looks for them when they are asked for
            yield row.queue, row.code, row.priority, row.partition_key or ""

    def rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        catalog = self._store.catalog
        held = {
            BLOBS: [blob for blob, _ in catalog._blobs.values()],  # type: ignore[attr-defined]
            RELEASES: catalog._releases,  # type: ignore[attr-defined]
            VERSIONS: catalog._versions,  # type: ignore[attr-defined]
            LABELS: catalog._labels,  # type: ignore[attr-defined]
            ALIASES: catalog._aliases,  # type: ignore[attr-defined]
            UPGRADES: [row for run_id in self._store._runs for row in catalog.upgrades_of(run_id)],
            SIGNATURES: sorted(catalog._signatures),  # type: ignore[attr-defined]
            RECORD: catalog._changes,  # type: ignore[attr-defined]
            ROUTES: [row for routes in catalog._routes.values() for rows in routes.values() for row in rows],  # type: ignore[attr-defined]
        }
        columns = sql.removeprefix("select ").partition(" from ")[0].split(", ")
        for row in held[sql]:
            yield tuple(getattr(row, column) for column in columns)

    def strays(self) -> Iterator[tuple[str, str]]:
        for table in ("_events", "_inbox", "_tags"):
            for run_id in getattr(self._store, table).keys() - self._store._runs.keys():
                yield table, run_id
