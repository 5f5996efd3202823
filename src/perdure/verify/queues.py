"""Rules about queues: limits held, slots are ownerships, lines are found, settings are what was changed."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from perdure.verify.evidence import LIMITS, Case, Evidence, Fact, Finding, QueueFacts, detail_of

_FOR_EVER = 2**62


class Span(NamedTuple):
    """When a run had a slot, or a worker had a run."""

    began: int
    anew: bool
    """Whether it needed room: a run that is taken over, or comes back to a slot that it kept, has its place already."""
    ended: int


class Ledger:
    """What is checked over all runs of a queue. Only claims after the last change of its settings are judged.

    Args:
        evidence: the stored rows.
        slack_us: microseconds by which the recorded end of a run may lie after a claim that came after it. The times of
            claims need none: they are told by one clock, while the queue is locked.
    """

    def __init__(self, evidence: Evidence, slack_us: int) -> None:
        self._queues = {queue.name: queue for queue in evidence.queues()}
        self._held_since = {name: _held_since(queue) for name, queue in self._queues.items()}
        self._slots = dict(evidence.slots())
        self._lanes = set(evidence.lanes())
        self._slack = slack_us
        self._owned: defaultdict[tuple[str, str, str], list[Span]] = defaultdict(list)
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
        name, key = queue.name, case.row.partition_key
        # What a fork has copied happened once, to the run that it was copied from.
        copied = max((place for place, fact in enumerate(case.facts, 1) if fact.type == "run_forked"), default=0)
        facts = case.facts[copied:]
        if queue.limit("rate_limit") is not None:
            claims = [fact.at for fact in facts if fact.type == "run_claimed" and fact.at > queue.changed_at]
            self._claims[name].extend(claims)
        for worker, span in _spans(facts, self._held_since[name]):
            if worker is not None:
                self._owned[name, "concurrency_per_worker", worker].append(span)
                continue
            self._owned[name, "concurrency", ""].append(span)
            if key is not None:
                self._owned[name, "concurrency_per_key", key].append(span)

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

    def _overlap(self, name: str, limit: str, of: str, spans: list[Span], most: int) -> Iterator[Finding]:
        """G12: a claim after the last change of the settings finds room."""
        since = self._queues[name].changed_at
        ends = sorted(span.ended for span in spans)
        for place, span in enumerate(sorted(spans), start=1):
            at = span.began
            # Those that began until now, less those that had ended.
            owned = place - bisect_right(ends, at + self._slack)
            if span.anew and at > since and owned > most:
                whose = f" of {of!r}" if of else ""
                text = f"queue {name!r}: {owned} runs{whose} were owned at {at}, where {limit} is {most}"
                yield Finding("limit", None, None, text)
                return

    def _rate(self, name: str, claims: list[int]) -> Iterator[Finding]:
        """G12: no window has more claims than the rate says. Exactly: all of them are told by one clock."""
        queue = self._queues[name]
        limit, window = queue.limit("rate_limit"), queue.limit("rate_us") or 0
        if limit is None:
            return
        for first, after in zip(claims, claims[limit:], strict=False):
            if after - first < window:
                text = f"queue {name!r}: more than {limit} claims in the {window} µs from {first} on"
                yield Finding("rate", None, None, text)
                return


def _spans(facts: Iterable[Fact], held_since: int | None) -> Iterator[tuple[str | None, Span]]:
    """Yield when a run had a slot, under None, and when it was at work, under its worker.

    Args:
        facts: the log of the run.
        held_since: a wait that begins after that keeps the slot; None: no wait does.
    """
    slot: tuple[int, bool] | None = None
    work: tuple[str, int] | None = None
    for fact in facts:
        if fact.state is None:
            continue
        if work is not None:
            yield work[0], Span(work[1], True, fact.at)
            work = None
        waits = fact.state.endswith(">waiting") and held_since is not None and fact.at > held_since
        if slot is not None and not waits:
            yield None, Span(*slot, fact.at)
        if fact.type == "run_claimed":
            slot = (fact.at, slot is None)
            work = (str(detail_of(fact).get("worker")), fact.at)
        elif not waits:
            slot = None
    if work is not None:
        yield work[0], Span(work[1], True, _FOR_EVER)
    if slot is not None:
        yield None, Span(*slot, _FOR_EVER)


def _held_since(queue: QueueFacts) -> int | None:
    """Return since when a run that waits keeps its slot; None if it does not.

    A run that waits as that is set has none to keep.
    """
    said: dict[str, int | None] = {}
    since = None
    for _, at, change in queue.changes:
        said |= {name: after for name, (_, after) in json.loads(change).items()}
        if not (said.get("hold_while_waiting") and any(said.get(limit) is not None for limit in LIMITS)):
            since = None
        elif since is None:
            since = at
    return since


def _changes(queue: QueueFacts) -> Iterator[Finding]:
    """The record of changes is whole, and adds up to the settings."""
    said: dict[str, int | None] = dict.fromkeys(queue.settings)
    said |= {"fair": 0, "hold_while_waiting": 0, "paused": 0}
    for place, (n, _, change) in enumerate(queue.changes, start=1):
        if n != place:
            yield Finding("queue change", None, None, f"queue {queue.name!r}: change {place} is not there")
            return
        for name, (_, after) in json.loads(change).items():
            said[name] = after
    if said != queue.settings or len(queue.changes) != queue.number:
        text = f"queue {queue.name!r}: its settings are not what its changes add up to"
        yield Finding("queue change", None, None, text)
