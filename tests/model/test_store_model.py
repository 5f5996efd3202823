"""Any sequence of calls has the same answers and leaves the same state in SQLite as in the store in memory.

Writers are stale on purpose: each run has several authors who do not know of each other.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from perdure.model.claim import ClaimRequest, Claims
from perdure.model.event import tail_of
from perdure.model.filter import RunFilter
from perdure.model.queue import FLAGS, LIMITS
from perdure.model.run import RunRow
from perdure.model.status import EventType, Status
from perdure.model.write import COMMITTED, Append, Failed, Outcome, SetQueue, Upgrade, Write
from perdure.store.base import StoreOptions
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SqliteStore
from perdure.store.sqlite.clock import Machine
from perdure.testing.author import Author, claims_for, worker

RUNS = [f"run-{n}" for n in range(5)]
WORKERS = ["w1", "w2", "w3"]
START = 1_700_000_000_000_000
MOVES = [
    EventType.RUN_CLAIMED,
    EventType.RUN_WAITING,
    EventType.RUN_RELEASED,
    EventType.RUN_PARKED,
    EventType.RUN_UNPARKED,
    EventType.RUN_PAUSED,
    EventType.RUN_RESUMED,
    EventType.RUN_COMPLETED,
    EventType.RUN_FAILED,
    EventType.RUN_REOPENED,
    EventType.RUN_TERMINATED,
]
UNOWNED = {
    EventType.RUN_WAITING,
    EventType.RUN_RELEASED,
    EventType.RUN_UNPARKED,
    EventType.RUN_RESUMED,
    EventType.RUN_REOPENED,
}

run_ids = st.sampled_from(RUNS)
worker_ids = st.sampled_from(WORKERS)
moments = st.integers(-50, 50)


def comparable(outcomes: list[Outcome] | None) -> list[Any]:
    """Drop what backends word differently: why a value cannot be stored."""
    return [Failed if isinstance(outcome, Failed) else outcome for outcome in outcomes or ()]


class StoreMachine(RuleBasedStateMachine):
    """Both stores, and what some writers believe."""

    def __init__(self) -> None:
        super().__init__()
        self.time = START
        self.folder = Path(tempfile.mkdtemp())
        machine = Machine("boot", "host", lambda: self.time, lambda: self.time - START)
        self.oracle = MemoryStore(lambda: self.time)
        self.sqlite = SqliteStore(self.folder / "runs.db", StoreOptions(durability="process"), machine)
        self.stores = (self.oracle, self.sqlite)
        self.authors: dict[str, list[Author]] = {run_id: [Author(run_id, START)] for run_id in RUNS}
        self.batch: list[Write] = []
        self.sent: list[Append | Upgrade] = []
        self.busy = 0
        self.changes = 0

    @initialize()
    def open(self) -> None:
        for store in self.stores:
            store.open()
        assert self.sqlite.now() == self.oracle.now()
        for n, run_id in enumerate(RUNS[:3]):
            self.create(run_id, n, -n, n, tagged=bool(n))
        for worker_id in WORKERS[:2]:
            self.register(worker_id, 60)
        self.commit()

    def teardown(self) -> None:
        self.sqlite.close()
        shutil.rmtree(self.folder)

    def author(self, run_id: str, draw: int) -> Author:
        author = self.authors[run_id][draw % len(self.authors[run_id])]
        author.at = self.time
        return author

    # ---- building a batch ----

    @rule(
        run_id=run_ids, who=st.integers(0, 9), delay=moments, priority=st.integers(-1, 2), tagged=st.booleans(),
        key=st.sampled_from([None, "x", "y"]), unique=st.sampled_from([None, None, "u"]), owned=st.booleans(),
    )  # fmt: skip
    def create(
        self, run_id: str, who: int, delay: int, priority: int, *, tagged: bool, key: str | None = None,
        unique: str | None = None, owned: bool = False,
    ) -> None:  # fmt: skip
        author = Author(run_id, self.time)
        self.authors[run_id].append(author)
        tags = (("team", "a"), ("n", str(priority))) if tagged else ()
        queue, workflow = f"q{priority % 2}", f"wf{who % 2}"
        self.batch.append(
            author.create(
                fresh=False, queue=queue, workflow=workflow, priority=priority, wake_at=self.time + delay, tags=tags,
                partition_key=key, deduplication_key=unique, owner=WORKERS[who % 3] if owned and who > 5 else None,
            )
        )  # fmt: skip

    @rule(
        queue=st.sampled_from(["q0", "q1"]),
        values=st.dictionaries(st.sampled_from(LIMITS), st.none() | st.integers(1, 2), max_size=2),
        flags=st.dictionaries(st.sampled_from([*FLAGS, "paused"]), st.integers(0, 1), max_size=2),
        ageing=st.none() | st.integers(1, 30), rate=st.none() | st.integers(1, 2), declared=st.booleans(),
    )  # fmt: skip
    def set_queue(
        self, queue: str, values: dict[str, int | None], flags: dict[str, int | None], ageing: int | None,
        rate: int | None, *, declared: bool,
    ) -> None:  # fmt: skip
        self.changes += 1
        rates = {"rate_limit": rate, "rate_us": None if rate is None else 30}
        pairs = tuple({**values, **flags, **rates, "ageing_us": ageing}.items())
        self.batch.append(SetQueue(queue, pairs, self.time, "ada", "", self.changes, declared))

    @rule(run_id=run_ids, who=st.integers(0, 9))
    def fork_view(self, run_id: str, who: int) -> None:
        self.authors[run_id].append(self.author(run_id, who).stale())
        del self.authors[run_id][:-4]

    @rule(run_id=run_ids, who=st.integers(0, 9), events=st.integers(1, 3), consumed=st.sets(st.integers(1, 3)))
    def step(self, run_id: str, who: int, events: int, consumed: set[int]) -> None:
        self.append(self.author(run_id, who).step(events=events, consumed=tuple(sorted(consumed))))

    @rule(run_id=run_ids, who=st.integers(0, 9), kind=st.sampled_from(MOVES), delay=moments, seen=st.integers(0, 2))
    def move(self, run_id: str, who: int, kind: EventType, delay: int, seen: int) -> None:
        author = self.author(run_id, who)
        wake_at = self.time + delay if kind in UNOWNED and delay % 5 else None
        owner = WORKERS[who % 3] if kind == EventType.RUN_CLAIMED else None
        try:
            append = author.move(kind, owner=owner, wake_at=wake_at, inbox_seen=seen)
        except ValueError:
            return
        self.append(append)

    @rule(run_id=run_ids, who=st.integers(0, 9))
    def poison(self, run_id: str, who: int) -> None:
        append = self.author(run_id, who).step()
        self.batch.append(replace(append, events=(append.events[0]._replace(digest=2**70),)))

    @rule(run_id=run_ids, who=st.integers(0, 9))
    def send(self, run_id: str, who: int) -> None:
        self.batch.append(self.author(run_id, who).send())

    @rule(run_id=run_ids, who=st.integers(0, 9))
    def purge(self, run_id: str, who: int) -> None:
        self.batch.append(self.author(run_id, who).purge())

    @rule(
        run_id=run_ids, who=st.integers(0, 9), source=st.sampled_from([0, 0, 0, 1, 2]), to=st.integers(1, 2),
        delay=moments, count=st.sampled_from([None, None, 0, 1]),
    )  # fmt: skip
    def upgrade(self, run_id: str, who: int, source: int, to: int, delay: int, count: int | None) -> None:
        try:
            upgrade = self.author(run_id, who).upgraded(source, to, wake_at=self.time + delay, version_count=count)
        except ValueError:
            return
        self.batch.append(upgrade)
        self.sent.append(upgrade)

    @precondition(lambda self: self.sent)
    @rule(which=st.integers(0, 99))
    def repeat(self, which: int) -> None:
        self.batch.append(self.sent[which % len(self.sent)])

    def append(self, append: Append) -> None:
        self.batch.append(append)
        self.sent.append(append)
        del self.sent[:-8]

    # ---- calls ----

    @precondition(lambda self: self.batch)
    @rule()
    def commit(self) -> None:
        expected, found = (comparable(store.commit(self.batch)) for store in self.stores)
        assert found == expected, self.batch
        # What was refused is never sent again: a writer rule, without which a stale append could fit by chance later.
        refused = [write for write, outcome in zip(self.batch, expected, strict=True) if outcome is not COMMITTED]
        self.sent = [append for append in self.sent if append not in refused]
        self.batch = []
        self.refute()

    def refute(self) -> None:
        """Let writers whose view has turned out wrong look again: one that was refused writes nothing more."""
        for run_id, authors in self.authors.items():
            log, row = self.oracle.load(run_id), self.oracle.get(run_id)
            for place, author in enumerate(authors):
                seq = author.tail.seq
                if seq and seq <= len(log) and tail_of(log[seq - 1]) == author.tail:
                    continue
                authors[place] = Author(run_id, self.time)
                if isinstance(row, RunRow):
                    authors[place].tail, authors[place].epoch = tail_of(log[-1]), row.epoch
                    authors[place].status = Status(row.status)

    @rule(
        worker_id=worker_ids, limit=st.integers(0, 3), take_over=st.booleans(), narrow=st.booleans(),
        only=st.none() | run_ids, shares=st.sampled_from([(), (1, 1), (0, 3)]),
    )  # fmt: skip
    def claim(
        self, worker_id: str, limit: int, *, take_over: bool, narrow: bool, only: str | None, shares: tuple[int, ...]
    ) -> None:
        codes = ("0 wf1",) if narrow else ("0 wf0", "0 wf1")
        request = ClaimRequest(worker_id, ("q0", "q1"), codes, limit, take_over, only, shares)
        decided: dict[str, Any] = {}
        decide = claims_for(worker_id)

        def same(row: Any, recent: Any, now: int) -> Any:
            return decided.setdefault(row.id, decide(row, recent, now))

        # Why more was not taken is each one's own: a store need not look for what it cannot take.
        expected, found = ((store.claim(request, same) or Claims([])).taken for store in self.stores)
        assert found == expected
        for claimed in expected:
            author = Author(claimed.row.id, self.time)
            author.follow(claimed)
            self.authors[claimed.row.id].append(author)
            assert [claimed.recent[-1].seq + 1] == [claimed.append.events[0].seq]

    @rule(worker_id=worker_ids, lease=st.integers(1, 60))
    def register(self, worker_id: str, lease: int) -> None:
        for store in self.stores:
            store.register(worker(worker_id, self.time, lease))

    @rule(worker_id=worker_ids, lease=st.integers(0, 60))
    def heartbeat(self, worker_id: str, lease: int) -> None:
        expected, found = (store.heartbeat(worker_id, lease) for store in self.stores)
        assert found == expected

    @rule()
    def sweep(self) -> None:
        expected, found = (store.sweep() for store in self.stores)
        assert found == expected

    @rule(by=st.integers(1, 40))
    def wait(self, by: int) -> None:
        self.time += by

    @rule()
    def restart(self) -> None:
        self.sqlite.close()
        self.sqlite.open()

    @rule(
        statuses=st.sets(st.sampled_from(["pending", "running", "completed", "waiting"])),
        workflow=st.none() | st.just("wf1"),
        tags=st.sampled_from([(), (("team", "a"),), (("team", "a"), ("n", "1"))]),
        since=st.none() | moments,
        limit=st.integers(0, 4),
    )
    def look(self, statuses: set[str], workflow: str | None, tags: Any, since: int | None, limit: int) -> None:
        query = RunFilter(
            tuple(sorted(statuses)),
            workflow,
            None,
            None,
            tags,
            None if since is None else self.time + since,
            limit=limit,
        )
        assert self.sqlite.list(query) == self.oracle.list(query)

    @invariant()
    def states_are_the_same(self) -> None:
        if self.batch:
            return
        for run_id in RUNS:
            assert self.sqlite.get(run_id) == self.oracle.get(run_id)
            assert self.sqlite.load(run_id) == self.oracle.load(run_id)
            assert self.sqlite.inbox(run_id) == self.oracle.inbox(run_id)
            assert self.sqlite.catalog.upgrades_of(run_id) == self.oracle.catalog.upgrades_of(run_id)
        assert self.sqlite.list(RunFilter()) == self.oracle.list(RunFilter())
        # The facts are each one's own.
        expected, found = (store.stats()._replace(facts=()) for store in (self.oracle, self.sqlite))
        assert found._replace(waiting=tuple(sorted(found.waiting))) == expected
        for worker_id in WORKERS:
            assert self.sqlite.owned(worker_id) == self.oracle.owned(worker_id)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
