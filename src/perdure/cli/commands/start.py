"""``perdure start``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perdure.api.engine import Engine
from perdure.api.health import is_served
from perdure.api.starting import new_id
from perdure.cli import arguments, options, target
from perdure.cli.output import print_json, print_line
from perdure.cli.serving import serve, until_stopped
from perdure.cli.session import rehearse
from perdure.cli.telling import INTERRUPTED, say
from perdure.model.status import Status

if TYPE_CHECKING:
    from perdure.cli.serving import Stop


@click.command("start")
@click.argument("what", metavar="WORKFLOW")
@arguments.given
@click.option("--id", "run_id", metavar="ID", help="Id of the run; a new one by default. The same id never runs twice.")
@options.database
@click.option("--queue", metavar="Q", default="default", show_default=True, help="Queue to put it on.")
@click.option("--partition-key", metavar="K", help="Whose run it is: what the queue is fair to, and limits by.")
@click.option("--deduplication-key", metavar="K",
              help="While a run of the queue with this key has not ended, print that run's id instead.")  # fmt: skip
@click.option("--priority", type=int, default=0, show_default=True, help="Higher is sooner.")
@click.option("--delay", type=options.DURATION, help="Earliest time to begin, from now.")
@click.option("--timeout", type=options.DURATION, help="Time limit of the whole run.")
@click.option(
    "--version",
    metavar="V",
    help="Version to run: a label, the beginning of a hash, or a range; by default what the route says, else "
    "the newest.",
)
@click.option("--channel", metavar="C", help="Route that chooses the version.")
@click.option("--routing-key", metavar="K", help="What the route chooses by; the run's id by default.")
@options.tags
@click.option("--wait", is_flag=True, help="Wait for the end and print the result as JSON.")
@options.as_json
def command(
    *, what: str, text: str | None, named: tuple[tuple[str, str], ...], run_id: str | None, db: str, wait: bool,
    tag: tuple[tuple[str, str], ...], as_json: bool, queue: str, **rest: Any,
) -> int:  # fmt: skip
    """Record a run for workers to execute, and print its id.

    WORKFLOW is a target (package.module:workflow, file.py[:workflow]), whose signature is checked, or just the name of
    a workflow whose code is elsewhere. A start with the id of an earlier one changes nothing, and is refused unless
    workflow and arguments are the same.
    """
    found = target.load_one(what) if target.is_target(what) else None
    workflow = None if found is None else found.workflows[0]
    name = what if workflow is None else workflow.name
    args, kwargs = arguments.parse(workflow, name, text, named)
    given = (name if workflow is None else workflow, args, kwargs)
    call = {"id": new_id() if run_id is None else run_id, "queue": queue, "tags": dict(tag), **rest}
    code = [] if found is None else [found.given]
    rehearse(given, call, code)
    # With a version to look for, there must be a database that has it.
    engine = Engine(db, code, worker=False, create=rest.get("version") is None)

    async def work(stop: Stop) -> tuple[Any, bool]:
        async with engine:
            handle = await engine.start_call(*given, **call)
            served = await _served(engine, handle.id, queue, name)
            if not wait:
                return {"id": handle.id, "workflow": name, "queue": queue, "served": served}, True
            say(f"run {handle.id}")
            return await until_stopped(handle.result(), engine, stop)

    result, ended = serve(work, 0, lambda: None)
    if not ended:
        say(f"interrupted; run {call['id']} goes on")
        return INTERRUPTED
    if wait or as_json:
        print_json(result)
    else:
        print_line(result["id"])
    return 0


async def _served(engine: Engine, run_id: str, queue: str, name: str) -> bool:
    """Whether somebody works on such runs; if nobody does, say so."""
    if await is_served(engine.connection, queue, name):
        return True
    if await engine.get(run_id).status() in (Status.PENDING, Status.WAITING):
        say(
            f"warning: no live worker takes workflow {name!r} from queue {queue!r}, so run {run_id} waits for one; "
            "`perdure doctor` shows what is unserved"
        )
    return False
