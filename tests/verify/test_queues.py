"""Logs in which limits of queues were exceeded are told from logs in which they were kept, to the microsecond."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import perdure
from perdure.model.status import EventType
from perdure.model.write import SetQueue, Write
from perdure.store.base import StoreOptions, open_store
from perdure.testing.author import Author
from perdure.verify.database import opened, verify
from tests.verify.workload import WORKFLOWS, nap

START = 1_700_000_000_000_000
MS, SECOND = 1_000, 1_000_000
KINDS = {
    "claim": EventType.RUN_CLAIMED,
    "end": EventType.RUN_COMPLETED,
    "release": EventType.RUN_RELEASED,
    "stop": EventType.RUN_TERMINATED,
    "wait": EventType.RUN_WAITING,
}
Move = tuple[int, str]
"""(microseconds since the start, one of `KINDS` and the worker)."""


class Story(NamedTuple):
    """What happened in a queue."""

    settings: list[tuple[int, dict[str, int | None]]]
    """(microseconds since the start, what was set)."""
    runs: list[list[Move]]
    found: str | None = None
    """The rule that was broken."""
    key: str | None = None


def settings(at: int = 0, **values: int | None) -> list[tuple[int, dict[str, int | None]]]:
    """Return one change of settings."""
    return [(at, values)]


def at_once(*begins: int, until: int = 100 * MS, worker: str = "w1") -> list[list[Move]]:
    """Return runs that each begin at a time and end together."""
    return [[(began, f"claim {worker}"), (until, "end")] for began in begins]


def stories(slack: int) -> dict[str, Story]:
    """Return what happened, where an end may be recorded ``slack`` microseconds late."""
    two, held = settings(concurrency=2), settings(concurrency=1, hold_while_waiting=1)
    rate = settings(rate_limit=2, rate_us=50 * MS)
    late = 100 * MS - slack  # the first moment at which what ends after 100 ms is gone
    of_key, of_worker = settings(concurrency_per_key=1), settings(concurrency_per_worker=1)
    waits = [(1, "claim w1"), (10, "wait")]
    lowered = two + settings(5, concurrency=1)
    lowered_held = settings(concurrency=2, hold_while_waiting=1) + settings(15, concurrency=1)
    taken_over = [(1, "claim w1"), (20, "claim w2"), (100 * MS, "end")]
    return {
        "a claim just before one of two ends": Story(two, at_once(1, 2, late - 1), "limit"),
        "a claim just as one of two ends": Story(two, at_once(1, 2) + at_once(late, until=200 * MS)),
        "three in one claim": Story(two, at_once(1, 1, 1), "limit"),
        "two in one claim": Story(two, at_once(1, 1)),
        "two of one key": Story(of_key, at_once(1, late - 1), "limit", key="k"),
        "one of a key after the other": Story(of_key, at_once(1) + at_once(late, until=200 * MS), key="k"),
        "two without a key": Story(of_key, at_once(1, 2)),
        "two of one worker": Story(of_worker, at_once(1, late - 1), "limit"),
        "one of each of two workers": Story(of_worker, at_once(1) + at_once(2, worker="w2")),
        "a worker takes over one too many": Story(of_worker, [*at_once(2, worker="w2"), taken_over], "limit"),
        "a rate that is exceeded by a microsecond": Story(rate, at_once(1, 2, 50 * MS), "rate"),
        "a rate that is used up": Story(rate, at_once(1, 2, 50 * MS + 1, 50 * MS + 2)),
        "a rate that a return exceeds": Story(rate, [*at_once(1), [*waits, (30 * MS, "claim w1")]], "rate"),
        "a claim beside a run that waits with its slot": Story(held, [waits, [(20 * MS, "claim w1")]], "limit"),
        "a claim while a stopped run still waited": Story(
            held, [[*waits, (100 * MS, "stop")], [(late - 1, "claim w1")]], "limit"
        ),
        "a claim after a run that waited was stopped": Story(
            held, [[*waits, (100 * MS, "stop")], [(late, "claim w1")]]
        ),
        "a claim beside a run that waits without a slot": Story(
            settings(concurrency=1), [waits, [(20 * MS, "claim w1")]]
        ),
        "a claim beside a run that waited before slots were held": Story(
            settings(concurrency=1) + settings(15, hold_while_waiting=1), [waits, [(20 * MS, "claim w1")]]
        ),
        "a run that waits with its slot is no worker's": Story(
            settings(concurrency_per_worker=1, hold_while_waiting=1), [waits, [(20 * MS, "claim w1")]]
        ),
        "a run is taken over above a limit that was lowered": Story(lowered, [*at_once(2), taken_over]),
        "a run comes back to its slot above a limit that was lowered": Story(
            lowered_held, [*at_once(2), [*waits, (20 * MS, "claim w1")]]
        ),
        "a run is claimed above a limit that was lowered": Story(
            lowered, [*at_once(2, 3), [(1, "claim w1"), (10, "release"), (20, "claim w1")]], "limit"
        ),
    }  # fmt: skip


def writes(queue: str, story: Story) -> Iterator[Write]:
    """Yield what records a story. All runs are stopped at last."""
    for number, (at, values) in enumerate(story.settings):
        yield SetQueue(queue, tuple(values.items()), START + at, "ada", "because", number, declared=False)
    for number, moves in enumerate(story.runs):
        author = Author(f"{queue} {number}", START)
        yield author.create(queue=queue, partition_key=story.key)
        for at, move in moves if moves[-1][1] in ("end", "stop") else [*moves, (SECOND, "stop")]:
            author.at = START + at
            name, _, worker = move.partition(" ")
            wake_at = author.at if name in ("wait", "release") else None
            facts = json.dumps({"worker": worker, "wake_at": wake_at}).encode()
            yield author.move(KINDS[name], owner=worker or None, wake_at=wake_at, facts=facts)


def test_what_breaks_a_limit_is_told_from_what_keeps_it(url: str) -> None:
    store = open_store(url, StoreOptions())
    store.open()
    with opened(url) as evidence:
        slacks = {"one clock": 0, "several clocks": evidence.slack_us}
    told = {f"{name}, {clocks}": one for clocks, slack in slacks.items() for name, one in stories(slack).items()}
    outcomes = store.commit([write for queue, story in told.items() for write in writes(queue, story)])
    store.close()
    assert outcomes is not None
    assert {type(outcome).__name__ for outcome in outcomes} == {"Committed"}
    for clocks, slack_us in (("one clock", 0), ("several clocks", None)):
        found = {(one.text.split("'")[1], one.rule) for one in verify(url, slack_us=slack_us).findings}
        expected = {(queue, story.found) for queue, story in told.items() if story.found and clocks in queue}
        assert {one for one in found if clocks in one[0]} == expected


def test_what_a_fork_has_copied_counts_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    queue = perdure.Queue("one", concurrency=1, rate=perdure.Rate(2, per="1h"))

    async def fork() -> None:
        async with perdure.Engine(url, WORKFLOWS, queues=[queue]) as engine:
            await engine.run(nap, 0.0, id="first", queue="one")
            await (await engine.fork("first", actor="test", reason="again")).result()

    asyncio.run(fork())
    report = verify(url)
    assert report.findings == []
    assert report.runs == 2
