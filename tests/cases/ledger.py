"""The outside ledger: every step body appends to a file of its own, which the engine does not know."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import perdure

PLACE = "CASE_LEDGER"
WORKER = "CASE_WORKER"


class Entry(NamedTuple):
    """One line: a step's body began, or ended, or something else a case wants to know."""

    run: str
    step: str
    attempt: int
    worker: str
    phase: str
    at: float
    value: object


def note(step: str | None = None, phase: str = "start", value: object = None) -> None:
    """Append a line; in a step it is told from the step's own facts. Safe from any thread and process."""
    try:
        info = perdure.step_info()
        run, name, attempt = info.run_id, info.name, info.attempt
    except perdure.UsageError:
        run, name, attempt = "", "", 0
    entry = Entry(run, step or name, attempt, worker(), phase, time.monotonic(), value)
    file = os.open(os.environ[PLACE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, json.dumps(entry).encode() + b"\n")
    finally:
        os.close(file)


def worker() -> str:
    """Give the name of this process."""
    return os.environ.get(WORKER, "test")


def flag(name: str) -> Path:
    """Give a file next to the ledger by which a test lets a step go on."""
    return Path(os.environ[PLACE]).with_name(f"flag-{name}")


class Ledger:
    """The reading end."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self, step: str | None = None, run: str | None = None, phase: str | None = "start") -> list[Entry]:
        if not self.path.exists():
            return []
        lines = self.path.read_text("utf-8").split("\n")[:-1]
        found = [Entry(*json.loads(line)) for line in lines]
        return [
            entry
            for entry in found
            if (step is None or entry.step == step)
            and (run is None or entry.run == run)
            and (phase is None or entry.phase == phase)
        ]

    def count(self, step: str | None = None, run: str | None = None, phase: str | None = "start") -> int:
        """Count how often the body of a step really ran."""
        return len(self.entries(step, run, phase))

    def quick_count(self, step: str, run: str) -> int:
        """Count how often a step began in a run, without reading every line: for use while many runs go on."""
        return self.path.read_bytes().count(f'["{run}", "{step}", '.encode()) if self.path.exists() else 0

    def counts(self, step: str) -> dict[str, int]:
        """Give run id to how often the step ran for it."""
        found: dict[str, int] = {}
        for entry in self.entries(step):
            found[entry.run] = found.get(entry.run, 0) + 1
        return found

    async def until(self, step: str, count: int = 1, within: float = 60.0, phase: str = "start") -> None:
        """Wait until a step has run so often."""
        await until(lambda: self.count(step, phase=phase) >= count, within, f"{count} x {step}")


async def until(condition: Callable[[], bool], within: float = 60.0, what: str = "the condition") -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}")
        await asyncio.sleep(0.01)
