"""The same through whole engines: a log in a fresh database is taken up by a fresh engine, at any crash point."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.kernel.loop import RunLoop
from perdure.model.event import EMPTY_TAIL, Event, broken_link
from perdure.model.run import RunRow
from perdure.model.status import EventType
from perdure.model.write import Committed, Create
from tests.kernel import programs, sync_programs
from tests.kernel.outside import Outside, enter, here
from tests.kernel.replay import answered, shape
from tests.kernel.world import result

PROGRAMS: list[tuple[perdure.Workflow[..., Any], int]] = [
    (programs.sequence, 1),
    (programs.task_groups, 3),
    (programs.mixed_durability, 4),
    (programs.context_variables, 2),
    (sync_programs.sync_loop, 3),
]
BACKENDS = ("memory", "postgres", "sqlite")


@pytest.fixture(autouse=True)
def bodies_run_outside_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.14 does not let a task of one loop run inside a task of another."""
    drain = RunLoop.drain

    def watched(loop: RunLoop) -> None:
        assert asyncio.current_task() is None, "a body was run from inside a task"
        drain(loop)

    monkeypatch.setattr(RunLoop, "drain", watched)


@pytest.fixture(params=BACKENDS)
def url_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Give a function from a name to the URL of an empty database."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("new_database")("postgres").url
        return lambda name: f"{url}?schema={name}"
    if request.param == "memory":
        return lambda name: f"memory://{tmp_path.name}-{name}"
    return lambda name: f"sqlite:///{tmp_path / name}.db"


async def live(url: str, workflow: perdure.Workflow[..., Any], seed: int, log: Sequence[Event] = ()) -> list[Event]:
    """Run the workflow, from the beginning or from what a crash left behind, and give its whole log."""
    enter(Outside(seed, slowest_s=0.004))
    async with perdure.Engine(url, [workflow], poll="20ms") as engine:
        if log:
            await put(engine, workflow, log)
            handle = engine.get("run")
        else:
            handle = await engine.start(workflow, id="run")
        await handle.result(timeout=30)
        connection = engine.connection
        events: list[Event] = await connection.read(connection.store.load, "run")
        return events


async def put(engine: perdure.Engine, workflow: perdure.Workflow[..., Any], log: Sequence[Event]) -> None:
    """Store a log as a dead worker has left it: recorded, and due."""
    row = RunRow(
        "run", workflow.name, workflow.version, "pending", "default", 0, log[0].at, None, log[-1].epoch, 0, None, 0,
        None, None, log[0].at, log[-1].at,
    )  # fmt: skip
    assert isinstance(await engine.connection.write(Create(row, tuple(log), fresh=False)), Committed)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program[0].name)
async def test_a_fresh_engine_goes_on_from_any_crash_point(
    url_of: Callable[[str], str], program: tuple[perdure.Workflow[..., Any], int]
) -> None:
    workflow, every = program
    original = await live(url_of("first"), workflow, seed=1)
    assert original[-1].type == EventType.RUN_COMPLETED
    for cut in range(2, len(original), every):
        prefix = original[:cut]
        url = url_of(f"cut{cut}")
        log = await live(url, workflow, seed=cut, log=prefix)
        calls = set(here().calls)
        assert broken_link("run", EMPTY_TAIL, log) is None
        assert log[:cut] == prefix
        assert result(log[-1]) == result(original[-1])
        assert shape(log) == shape(original)
        assert not calls & answered(prefix)


@pytest.mark.parametrize(
    "name", ["cancellation", "first_completed", "at_most_once", "abandoned_generators", "queue_of_work"]
)
async def test_bodies_are_run_from_plain_callbacks_only(url_of: Callable[[str], str], name: str) -> None:
    log = await live(url_of("one"), programs.EVERY[name], seed=2)
    assert log[-1].type == EventType.RUN_COMPLETED
