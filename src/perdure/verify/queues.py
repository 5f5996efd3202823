"""Rules about queues: limits held, slots are ownerships, lines are found, settings are what was changed."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from perdure.verify.evidence import Case, Evidence, Finding, QueueFacts

LIMITS = ("concurrency", "concurrency_per_worker", "concurrency_per_key")


class Ledger:
    """What is checked over all runs of a queue. Only claims after the last change of its settings are judged.

    Args:
        evidence: the stored rows.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._queues = {queue.name: queue for queue in evidence.queues()}
        self._slots = dict(evidence.slots())
        self._lanes = set(evidence.lanes())
        self._slack = evidence.slack_us
        self._owned: defaultdict[tuple[str, str, str], list[tuple[int, int]]] = defaultdict(list)
        """(queue, limit, of what) to the spans in which a slot was taken."""
        self._claims: defaultdict[str, list[int]] = defaultdict(list)

    def case(self, case: Case) -> Iterator[Finding]:
        """Check one run, and remember when it had a slot."""
        row = case.row
        if row.wake_at is not None and row.partition_key is not None:
            lane = (row.queue, f"{row.version_id} {row.workflow}", row.priority, row.partition_key)
            if lane not in self._lanes:
                yield Finding("lane", row.id, None, "its line is not there: nobody will ever claim it")
        queue = self._queues.get(row.queue)
        if queue is None:
            return
        if row.status == "running" and queue.is_limited and self._slots.get(row.id) != row.epoch:
            yield Finding("slot", row.id, None, f"it is owned in epoch {row.epoch} and has no slot of that epoch")
        self._remember(case, queue)

    def _remember(self, case: Case, queue: QueueFacts) -> None:
        row, since = case.row, queue.changed_at
        began: int | None = None
        worker = ""
        for fact in case.facts:
            if fact.type == "run_claimed":
                if queue.limit("rate_limit") is not None and fact.at > since:
                    self._claims[row.queue].append(fact.at)
                if began is not None and fact.epoch:
                    self._span(row.queue, row.partition_key, worker, began, fact.at)
                began, worker = fact.at, str(json.loads(fact.detail or b"{}").get("worker"))
            elif began is not None and fact.state is not None and fact.state.startswith("running>"):
                if fact.type == "run_waiting" and queue.holds:
                    continue
                self._span(row.queue, row.partition_key, worker, began, fact.at)
                began = None
        if began is not None and row.status in ("running", "waiting"):
            self._span(row.queue, row.partition_key, worker, began, 2**62)

    def _span(self, queue: str, key: str | None, worker: str, began: int, ended: int) -> None:
        self._owned[queue, "concurrency", ""].append((began, ended))
        if key is not None:
            self._owned[queue, "concurrency_per_key", key].append((began, ended))
        if worker:
            self._owned[queue, "concurrency_per_worker", worker].append((began, ended))

    def findings(self) -> Iterator[Finding]:
        """Check what concerns all runs of a queue together."""
        for queue in self._queues.values():
            yield from _changes(queue)
        for (name, limit, of), spans in sorted(self._owned.items()):
            most = self._queues[name].limit(limit)
            if most is not None:
                yield from self._overlap(name, limit, of, spans, most)
        for name, claims in sorted(self._claims.items()):
            yield from self._rate(name, sorted(claims))

    def _overlap(self, name: str, limit: str, of: str, spans: list[tuple[int, int]], most: int) -> Iterator[Finding]:
        """G12: a claim after the last change of the settings finds room."""
        since = self._queues[name].changed_at
        begins = sorted(began for began, _ in spans)
        ends = sorted(ended for _, ended in spans)
        for place, at in enumerate(begins, start=1):
            # Those that began until now, less those that had ended: with slack for clocks that are not one.
            owned = place - bisect_left(ends, at + self._slack + 1)
            if at > since and owned > most:
                whose = f" of {of!r}" if of else ""
                text = f"queue {name!r}: {owned} runs{whose} were owned at {at}, where {limit} is {most}"
                yield Finding("limit", None, None, text)
                return

    def _rate(self, name: str, claims: list[int]) -> Iterator[Finding]:
        """G12: no window has more claims than the rate says."""
        queue = self._queues[name]
        limit, window = queue.limit("rate_limit"), queue.limit("rate_us") or 0
        if limit is None:
            return
        for first, after in zip(claims, claims[limit:], strict=False):
            if after - first < window - self._slack:
                text = f"queue {name!r}: more than {limit} claims in the {window} µs from {first} on"
                yield Finding("rate", None, None, text)
                return


def _changes(queue: QueueFacts) -> Iterator[Finding]:
    """The record of changes is whole, and adds up to the settings."""
    said: dict[str, int | None] = dict.fromkeys(queue.settings)
    said |= {"fair": 0, "hold_while_waiting": 0, "paused": 0}
    for place, (n, change) in enumerate(queue.changes, start=1):
        if n != place:
            yield Finding("queue change", None, None, f"queue {queue.name!r}: change {place} is not there")
            return
        for name, (_, after) in json.loads(change).items():
            said[name] = after
    if said != queue.settings or len(queue.changes) != queue.number:
        text = f"queue {queue.name!r}: its settings are not what its changes add up to"
        yield Finding("queue change", None, None, text)
