"""``perdure run``."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

from perdure.api.engine import Engine
from perdure.api.progress import Progress
from perdure.api.starting import new_id
from perdure.cli import arguments, logs, options, target
from perdure.cli.output import escape, on_terminal, print_json
from perdure.cli.serving import serve, until_stopped
from perdure.cli.session import rehearse
from perdure.cli.telling import INTERRUPTED, say
from perdure.model.duration import microseconds

if TYPE_CHECKING:
    from perdure.cli.serving import Stop

GRACE = "5s"
LOOK_S = 0.2


@click.command("run")
@click.argument("what", metavar="TARGET")
@arguments.given
@click.option("--id", "run_id", metavar="ID", help="Id of the run; a new one by default.")
@options.database
@options.tags
@click.option("--timeout", type=options.DURATION, help="Time limit of the whole run.")
@click.option("--lease", type=options.DURATION, default="5s", show_default=True,
              help="How soon another process may take the run over, once this one is dead.")  # fmt: skip
@options.log_level("warning")
def command(
    *, what: str, text: str | None, named: tuple[tuple[str, str], ...], run_id: str | None, db: str,
    tag: tuple[tuple[str, str], ...], timeout: Any, lease: Any, log_level: str,
) -> int:  # fmt: skip
    """Execute one run here and print its result.

    Starts it if it is new, executes it until it ends, and prints the result as JSON.

    TARGET is package.module:workflow, package.module or file.py[:workflow]. With the id of an earlier run: go on with
    it, or print the result it had. Ctrl-C hands the run back; a second one stops at once. Only this run is executed.
    """
    logs.configure(log_level)
    found = target.load_one(what)
    (workflow,) = found.workflows
    args, kwargs = arguments.parse(workflow, workflow.name, text, named)
    call = {"id": new_id() if run_id is None else run_id, "tags": dict(tag), "timeout": timeout}
    given = (workflow, args, kwargs)
    rehearse(given, call, [found.given])
    engine = Engine(db, [found.given], lease=lease, poll="200ms", grace=GRACE, only=call["id"])

    async def work(stop: Stop) -> tuple[Any, bool]:
        async with engine:
            # This code, whatever new runs start on elsewhere; a run that is there already keeps its own.
            version = engine.carried_version(workflow.name)
            handle = await engine.start_call(*given, **call, version=version)
            say(f"run {handle.id}")
            with Shown(engine, handle.id):
                return await until_stopped(handle.result(), engine, stop)

    def told() -> None:
        say(f"stopping: a step in flight may finish within {GRACE}; once more to stop at once")

    result, ended = serve(work, microseconds(GRACE) / 1e6, told)
    if not ended:
        say(f"interrupted; go on with: perdure run {what} --id {call['id']}")
        return INTERRUPTED
    print_json(result)
    return 0


class Shown:
    """Shows on a terminal how far a run is."""

    def __init__(self, engine: Engine, run_id: str) -> None:
        self._progress = Progress(engine.connection, run_id)
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        if on_terminal():
            self._task = asyncio.get_running_loop().create_task(self._draw())

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            self._write("")

    async def _draw(self) -> None:
        with suppress(Exception):  # an ornament: what is wrong is told elsewhere
            while True:
                await self._progress.refresh()
                self._write(self._line())
                await asyncio.sleep(LOOK_S)

    def _line(self) -> str:
        progress = self._progress
        parts = [f"{progress.steps} step{'' if progress.steps == 1 else 's'} done"]
        if progress.failures:
            parts.append(f"{progress.failures} failed attempt{'' if progress.failures == 1 else 's'}")
        if progress.checkpoint is not None:
            parts.append(f"checkpoint {progress.checkpoint}")
        return escape(", ".join(parts))[: get_terminal_size().columns - 1]

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
