"""A step that raises what no worker may swallow is never recorded as failed, and is not tried for ever either."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure import Engine, Run, RunParked, Status, step, workflow

if TYPE_CHECKING:
    from pathlib import Path

    from tests.process import Spawner

WORKER = """
import asyncio, sys
import perdure

@perdure.step
async def leave() -> None:
    sys.exit(7)

@perdure.workflow(unversioned=True)
async def leaving() -> None:
    await leave()

async def main():
    async with perdure.Engine(sys.argv[1], [leaving]) as engine:
        await engine.get("x").result(timeout=20)

asyncio.run(main())
"""


MANY = """
import asyncio, sys
from pathlib import Path
import perdure

URL, WHERE, FOLDER = sys.argv[1], sys.argv[2], Path(sys.argv[3])

def leave_once(n: int, k: int) -> None:
    mark = FOLDER / "left"
    if (n, k) == (20, 1) and not mark.exists():
        mark.touch()
        sys.exit(7)

@perdure.step
async def note(n: int, k: int) -> None:
    with (FOLDER / "done").open("a") as done:
        print(n, k, file=done)
    if WHERE == "step":
        leave_once(n, k)

@perdure.workflow(unversioned=True)
async def noting(n: int) -> int:
    if WHERE == "start":
        leave_once(n, 1)
    for k in range(3):
        await note(n, k)
        if WHERE == "body":
            leave_once(n, k)
    return n

async def main():
    async with perdure.Engine(URL, [noting], grace=60) as engine:
        runs = [await engine.start(noting, 0, id="0")]
        runs += await asyncio.gather(*(engine.start(noting, n, id=str(n)) for n in range(1, 40)))
        print(sum(await asyncio.gather(*(run.result() for run in runs))))

asyncio.run(main())
"""


class Alarm(BaseException):
    """No failure of a step: it means its whole process."""


attempts: list[str] = []


def trouble(kind: str) -> BaseException:
    attempts.append(kind)
    return {
        "own": Alarm("now"),
        "exit": GeneratorExit(),
        "memory": MemoryError(),
        "group": BaseExceptionGroup("both", [Alarm("now")]),
    }[kind]


@step
async def fails(kind: str) -> None:
    raise trouble(kind)


@step
def fails_on_a_thread(kind: str) -> None:
    raise trouble(kind)


@workflow
async def troubled(kind: str, threaded: bool) -> None:
    await (fails_on_a_thread.aio(kind) if threaded else fails(kind))


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("kind", ["own", "exit", "memory", "group"])
async def test_a_run_whose_step_raises_something_fatal_each_time_is_parked(
    tmp_path: Path, kind: str, threaded: bool
) -> None:
    attempts.clear()
    async with Engine(f"sqlite:///{tmp_path}/f.db", [troubled], poll="50ms", hint="10ms", max_deaths=3) as engine:
        run = await engine.start(troubled, kind, threaded)
        name = type(trouble(kind)).__name__
        attempts.clear()
        with pytest.raises(RunParked, match=f"poison: 3 workers died of it in a row; the last of {name} in step"):
            await run.result(timeout=30)
        history = await run.history()
    assert len(attempts) <= 3
    assert "step_failed" not in {event.type for event in history}


async def test_a_step_that_exits_ends_a_few_workers_and_then_the_run_is_parked(tmp_path: Path, spawn: Spawner) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    async with Engine(url, worker=False) as client:
        run: Run[None] = await client.start("leaving", id="x")
        codes = [spawn.python(WORKER, url).finish().code for _ in range(4)]
        assert codes == [7, 7, 7, 1]
        assert await run.status() == Status.PARKED
        assert "SystemExit in step 'leave'" in str((await run.info()).detail)


@pytest.mark.parametrize("where", ["start", "body", "step"])
def test_the_end_of_a_process_in_one_run_does_not_stop_those_it_goes_on_with(
    tmp_path: Path, spawn: Spawner, where: str
) -> None:
    """They are handed over at once, not when the time for steps in flight is over."""
    url = f"sqlite:///{tmp_path}/m.db"
    assert spawn.python(MANY, url, where, str(tmp_path)).finish(12).code == 7
    second = spawn.python(MANY, url, where, str(tmp_path)).finish(12)
    assert (second.code, second.out.strip()) == (0, str(sum(range(40))))
    done = (tmp_path / "done").read_text().splitlines()
    assert len(set(done)) == 120
    assert len(done) - 120 <= (1 if where == "step" else 0), "only the step that ended the process is done again"
