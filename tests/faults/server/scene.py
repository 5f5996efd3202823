"""One database under load: the processes that work on it, and what must be true of it afterwards."""

from __future__ import annotations

import json
import os
import signal
import sys
from bisect import bisect_left
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from tests.process import Child, Spawner
from tests.servers.fixtures import Database

LOAD = "tests.faults.server.load"
ROOT = Path(__file__).parents[3]
WINDOW_S = 0.5
BEFORE_S = 1.5
"""The time before a kill that says what is usual: the machine may have other things to do, too."""


class Line(NamedTuple):
    """One step that began."""

    at: float
    worker: str
    run_id: str
    n: int


class Scene:
    """See the module."""

    def __init__(self, spawn: Spawner, folder: Path, database: Database, *, url: str = "", steps: int = 10) -> None:
        self.database = database
        self.url = url or database.url
        self.path = folder / "ledger"
        self.steps = steps
        self._spawn = spawn
        self._path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])

    def start(self, role: str, name: str, *, wait: bool = True, **options: Any) -> Child:
        """Start a process of the load, and wait until it is ready."""
        child = self._start(["-m", LOAD], role, name, options)
        if wait:
            child.expect("ready", 30)
        return child

    def start_script(self, script: str, role: str, name: str, **options: Any) -> Child:
        """Start a process of the load through a script that does something to it first."""
        child = self._start(["-c", script], role, name, options)
        child.expect("ready", 30)
        return child

    def _start(self, what: list[str], role: str, name: str, options: dict[str, Any]) -> Child:
        words = json.dumps({"steps": self.steps, **options})
        env = {"PYTHONPATH": self._path}
        return self._spawn(sys.executable, *what, role, self.url, self.path, name, words, env=env)

    def end(self, client: Child, within: float = 60) -> None:
        """Let what is under way come to its end, and start no more."""
        client.send(signal.SIGTERM)
        done = client.finish(within)
        assert done.code == 0, done.err[-4000:]

    def lines(self) -> list[Line]:
        """Give the steps that began, in their order."""
        found = [line.split() for line in self.path.read_text("ascii").splitlines()] if self.path.exists() else []
        return sorted(Line(float(at), worker, run_id, int(n)) for at, worker, run_id, n in found)

    def check(self, *clients: Child, interrupted: int = 0) -> int:
        """Check that nothing acknowledged is lost, and that nothing is recorded or done twice. Give the number of runs.

        Args:
            clients: whoever started runs.
            interrupted: how many steps may have been begun again, because their worker was killed or given up.
        """
        started, ended = (said(word, *clients) for word in ("started", "ended"))
        rows = self.database.rows
        recorded = rows("select run_id, count(*), count(distinct op) from event where type = ? group by 1", STEP)
        assert {run_id: (n, ops) for run_id, n, ops in recorded if (n, ops) != (self.steps, self.steps)} == {}
        assert {run_id for run_id, _, _ in recorded} >= started >= ended
        once = "select run_id, count(*) from event where type in ('run_completed', 'run_started') group by 1, type"
        assert [row for row in rows(once) if row[1] != 1] == []
        assert rows("select id, status from run where status <> 'completed' or owner is not null") == []
        begun = Counter((line.run_id, line.n) for line in self.lines())
        assert len(begun) == len(recorded) * self.steps
        again = sum(times - 1 for times in begun.values())
        assert again <= interrupted, [step for step, times in begun.items() if times > 1][:20]
        return len(recorded)

    def recoveries(self, kills: list[tuple[float, float]]) -> list[float]:
        """Give how long after each restart it took until half a second had half of the usual number of steps.

        Args:
            kills: when the server was killed, and when it answered again.
        """
        times = [line.at for line in self.lines()]
        found = []
        for killed, restarted in kills:
            before = bisect_left(times, killed) - bisect_left(times, killed - BEFORE_S)
            usual = before / BEFORE_S * WINDOW_S
            place = bisect_left(times, restarted)
            while place < len(times) and bisect_left(times, times[place] + WINDOW_S) - place < usual / 2:
                place += 1
            found.append((times[place] if place < len(times) else float("inf")) - restarted)
        return found


STEP = "step_completed"


def said(word: str, *clients: Child) -> set[str]:
    """Give the runs a client said something about."""
    lines = [line.split() for client in clients for line in client.out.splitlines()]
    return {line[1] for line in lines if line[0] == word}
