"""A storm: workers are killed and frozen while random programs run; at the end nothing is lost and nothing doubled."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from perdure.verify.database import verify
from tests.faults.storm.plan import Plan, make
from tests.process import Child, Spawner
from tests.servers.fixtures import KINDS, Database

FLOWS = "tests.faults.storm.flows"
LEASE_S = 1.0
CLAIMS = "select run_id, count(*) from event where type = 'run_claimed' group by 1"
SEED = int(os.environ.get("STORM_SEED", "1"))
OTHERS = [kind for kind in KINDS if kind != "postgres"]
ENDED = ("completed", "failed", "cancelled", "terminated", "parked")


class Storm:
    """The processes of one campaign, and what was done to them."""

    def __init__(self, spawn: Spawner, folder: Path, seed: int, runs: int, database: Database | None) -> None:
        self.spawn = spawn
        self.seed = seed
        self.runs = runs
        self.path = folder / "storm.db"
        self.database = database
        self.url = f"sqlite:///{self.path}" if database is None else database.url
        self.ledger = folder / "ledger"
        self.random = Random(seed)
        self.done: Counter[str] = Counter()
        self.acks: set[int] = set()
        self.finished = 0
        self.thaw_at: dict[Child, float] = {}
        self.past: list[Child] = []
        sink = spawn(sys.executable, "-m", "tests.faults.storm.sink", self.ledger, env=environment())
        self.env = environment() | {"SINK_PORT": sink.expect("port", 20).split()[1]}
        self.workers = [self.worker() for _ in range(3)]
        for worker in self.workers:
            worker.expect("ready", 30)
        self.client = self.start_client(0)

    def process(self, *argv: str) -> Child:
        return self.spawn(sys.executable, "-m", FLOWS, *argv, env=self.env)

    def worker(self) -> Child:
        return self.process("work", self.url)

    def start_client(self, first: int) -> Child:
        return self.process("request", self.url, str(self.seed), str(first), str(self.runs), "0.09")

    # -- what the nemesis does -----------------------------------------------------------------------------------

    def kill_worker(self) -> None:
        victim = self.random.choice([worker for worker in self.workers if worker not in self.thaw_at])
        place = self.workers.index(victim)
        victim.destroy()
        self.past.append(victim)
        self.workers[place] = self.worker()
        self.done["kills"] += 1

    def freeze_worker(self) -> None:
        free = [worker for worker in self.workers if worker not in self.thaw_at]
        if len(free) < 2:
            return  # somebody must be left to notice
        victim = self.random.choice(free)
        victim.send(signal.SIGSTOP)
        self.thaw_at[victim] = time.monotonic() + LEASE_S * self.random.uniform(1.5, 2.5)

    def thaw(self) -> None:
        for worker, when in list(self.thaw_at.items()):
            if time.monotonic() >= when:
                del self.thaw_at[worker]
                worker.send(signal.SIGCONT)
                self.done["freezes"] += 1

    def kill_client(self) -> None:
        self.client.destroy()
        self.listen()
        self.client = self.start_client(self.finished)
        self.done["client kills"] += 1

    def listen(self) -> None:
        """Take in what the client has said: it said it after the confirmation, unbuffered."""
        while self.client._pipe().closed is False and self.client._read(time.monotonic()):
            pass
        for line in self.client.out.splitlines():
            word, number = line.split()
            if word == "started":
                self.acks.add(int(number))
            elif word == "done":
                self.finished = max(self.finished, int(number) + 1)

    def blow(self, seconds: float, kills: int, freezes: int) -> None:
        """Do harm, evenly over the time, until all of it is done."""
        begin = time.monotonic()
        acts: list[tuple[float, Callable[[], None]]] = []
        for count, act in ((kills, self.kill_worker), (freezes, self.freeze_worker), (kills // 7, self.kill_client)):
            acts += [(self.random.uniform(0, seconds), act) for _ in range(count)]
        for when, act in sorted(acts, key=lambda item: item[0]):
            while (left := begin + when - time.monotonic()) > 0:
                self.thaw()
                time.sleep(min(left, 0.05))
            self.listen()
            act()
        while self.thaw_at:
            self.thaw()
            time.sleep(0.05)

    def settle(self, within: float) -> None:
        """Let everything come to its end without further harm."""
        deadline = time.monotonic() + within
        while self.finished < self.runs or self.unfinished():
            assert time.monotonic() < deadline, (
                f"{self.finished} of {self.runs} requested; open: {self.unfinished()[:20]}"
            )
            self.listen()
            time.sleep(0.2)

    def unfinished(self) -> list[tuple[str, str]]:
        marks = ", ".join("?" * len(ENDED))
        return self.rows(f"select id, status from run where status not in ({marks})", *ENDED)

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        if self.database is not None:
            return self.database.rows(sql, *values)
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=10)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def more(self, runs: int) -> None:
        """Have more runs requested, once those so far are."""
        deadline = time.monotonic() + 60
        while self.finished < self.runs:
            assert time.monotonic() < deadline, f"{self.finished} of {self.runs} requested"
            self.listen()
            time.sleep(0.1)
        self.runs += runs
        self.client.destroy()
        self.client = self.start_client(self.finished)

    # -- what is checked afterwards ------------------------------------------------------------------------------

    def check(self) -> dict[str, int]:
        report = verify(self.url, [f"run-{number}" for number in self.acks])
        assert [str(finding) for finding in report.findings] == []
        ends = dict(self.rows("select id, status from run"))
        payloads = dict(self.rows("select run_id, payload from event where type = 'run_completed'"))
        claims = {run: int(n) for run, n in self.rows(CLAIMS)}
        calls = self.calls()
        extra = 0
        for number in range(self.runs):
            plan = make(self.seed, number)
            assert ends.get(plan.run_id) == plan.status, (plan.run_id, ends.get(plan.run_id), plan.flow)
            if plan.status == "completed":
                assert json.loads(payloads[plan.run_id]) == plan.answer, plan.run_id
            extra += check_effects(plan, calls[plan.run_id], claims.get(plan.run_id, 1))
        refused, declared = self.stale()
        return {
            **self.done, "runs": report.runs, "events": report.events, "acknowledged": len(self.acks),
            "take-overs": self.takeovers(), "extra attempts": extra, "stale writes refused": refused,
            "declared dead": declared,
        }  # fmt: skip

    def takeovers(self) -> int:
        return len(self.rows("select run_id, seq from event where state = 'running>running'"))

    def calls(self) -> defaultdict[str, defaultdict[int, list[tuple[str, int]]]]:
        """Return run to operation to (key, value) of every call that reached the outside."""
        calls: defaultdict[str, defaultdict[int, list[tuple[str, int]]]] = defaultdict(lambda: defaultdict(list))
        for line in self.ledger.read_text().splitlines():
            run_id, n, _, value, key, _, _ = line.split("\t")
            calls[run_id][int(n)].append((key, int(value)))
        return calls

    def stale(self) -> tuple[int, int]:
        """Count from what the workers said: appends that were refused, and workers that learnt they are dead."""
        texts = [child.err for child in (*self.past, *self.workers)]
        return (
            sum(text.count("a stale append was refused") for text in texts),
            sum(text.count("was declared dead") for text in texts),
        )


def check_effects(plan: Plan, calls: defaultdict[int, list[tuple[str, int]]], claims: int) -> int:
    """Compare the outside with the plan; return how many attempts there were beyond the usual."""
    extra = 0
    for n, value in plan.keyed.items():
        started = plan.status == "completed" or n in calls
        if started:
            assert {found for _, found in calls[n]} == {value}, (plan.run_id, n)
            assert len({key for key, _ in calls[n]}) == 1, (plan.run_id, n)
    for n in plan.once:
        assert len(calls[n]) <= 1, (plan.run_id, n, calls[n])
    for n, times in plan.usual.items():
        extra += max(0, len(calls[n]) - times)
    assert extra <= (claims - 1) * plan.width, (plan.run_id, extra, claims)
    return extra


def environment() -> dict[str, str]:
    return {"PYTHONPATH": ":".join([str(Path.cwd()), *filter(None, sys.path)]), "PYTHONHASHSEED": "random"}


@pytest.mark.serial
@pytest.mark.timeout(300)
def test_a_storm_loses_nothing_and_doubles_nothing(
    spawn: Spawner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign(spawn, tmp_path, capsys, None, seed=SEED, runs=320, seconds=40, kills=55, freezes=34)


@pytest.mark.serial
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["postgres", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in OTHERS)])
def test_a_storm_on_a_server_loses_nothing_and_doubles_nothing(
    spawn: Spawner,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    new_database: Callable[[str], Database],
    kind: str,
) -> None:
    campaign(spawn, tmp_path, capsys, new_database(kind), seed=SEED, runs=80, seconds=8, kills=10, freezes=6, stale=1)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2, 12))
def test_a_long_storm(spawn: Spawner, tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    campaign(spawn, tmp_path, capsys, None, seed=seed, runs=800, seconds=240, kills=300, freezes=150)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2, 7))
def test_a_long_storm_on_a_server(
    spawn: Spawner,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    new_database: Callable[[str], Database],
    kind: str,
    seed: int,
) -> None:
    campaign(spawn, tmp_path, capsys, new_database(kind), seed=seed, runs=800, seconds=240, kills=300, freezes=150)


def campaign(
    spawn: Spawner, tmp_path: Path, capsys: pytest.CaptureFixture[str], database: Database | None, *, seed: int,
    runs: int, seconds: float, kills: int, freezes: int, stale: int = 3,
) -> None:  # fmt: skip
    storm = Storm(spawn, tmp_path, seed, runs, database)
    storm.blow(seconds, kills, freezes)
    for _ in range(6):
        idle = storm.takeovers() < kills // 3  # on a slow machine many are killed before they own anything
        if not idle and storm.stale()[0] >= stale:
            break
        storm.more(60)  # whether a thawed worker writes before it learns that it is dead is chance: give it more
        storm.blow(6, kills // 3 if idle else 0, 8)
    storm.settle(60)
    counts = storm.check()
    with capsys.disabled():
        where = "SQLite" if database is None else type(database.server).__name__
        print(
            f"\nstorm on {where}, seed {seed}: {', '.join(f'{count} {name}' for name, count in counts.items())}", end=""
        )
    # A campaign that did too little has shown nothing.
    assert counts["kills"] >= kills
    assert counts["freezes"] >= freezes * 0.6
    assert counts["client kills"] >= kills // 8
    assert counts["acknowledged"] == storm.runs
    assert counts["take-overs"] >= kills // 3
    assert counts["extra attempts"] >= kills // 11
    assert counts["stale writes refused"] >= stale
