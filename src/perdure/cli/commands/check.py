"""``perdure check``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from perdure.cli import options, target
from perdure.cli.checking import checker
from perdure.cli.output import print_json, print_line
from perdure.cli.telling import FAILED, USAGE, say
from perdure.errors import PerdureError, UsageError
from perdure.model.status import Status
from perdure.replay.verdict import Verdict, VerdictKind

if TYPE_CHECKING:
    from perdure.api.engine import Engine


@click.command("check")
@click.argument("ids", metavar="ID...", nargs=-1)
@click.option("--code", "code", metavar="TARGET", multiple=True,
              help="The code: package.module:workflow, package.module or file.py[:workflow].")  # fmt: skip
@click.option("--to", metavar="V", help="Or a stored version: a label, the beginning of a hash, or a range.")
@options.trusting
@options.database
@click.option("--workflow", metavar="NAME", help="Check the newest runs of this workflow.")
@click.option("--from", "from_version", metavar="V", help="Only those bound to this version.")
@click.option("--sample", type=click.IntRange(1), default=100, show_default=True, help="So many of them.")
@click.option("--status", multiple=True, type=click.Choice([status.value for status in Status]),
              help="Only those in this state; may be repeated.")  # fmt: skip
@click.option("--accept", type=click.Choice(["args-differ"]), help="SAFE_ARGS_DIFFER is nothing found.")
@click.option("--processes", type=click.IntRange(0, 16), default=2, show_default=True,
              help="Replay each run in so many processes, each with another hash seed; 0 for this one.")  # fmt: skip
@options.as_json
def command(
    *, ids: tuple[str, ...], code: tuple[str, ...], to: str | None, db: str, workflow: str | None,
    from_version: str | None, sample: int, status: tuple[str, ...], accept: str | None, processes: int, as_json: bool,
    **trust: Any,
) -> int:  # fmt: skip
    """Replay recorded runs with changed code, without calling a step, and say where the two part.

    Exit code 1 if something was found. With --json one object per line.
    """
    if bool(ids) == (workflow is not None):
        message = "give the ids of runs, or --workflow"
        raise UsageError(message)
    if bool(code) == (to is not None):
        message = "give the code to check against: --code, or --to with a stored version"
        raise UsageError(message)
    if from_version is not None and workflow is None:
        message = "--from goes with --workflow"
        raise UsageError(message)
    given = [target.load(text).given for text in code]

    async def work() -> int:
        async with checker(db, given, **trust) as engine:
            found = list(dict.fromkeys(ids))
            if workflow is not None:
                listed = engine.list(
                    workflow=workflow, version=from_version, status=status or None, limit=sample
                )  # fmt: skip
                found = [info.id async for info in listed]
            return await _tell(engine, found, to=to, processes=processes, accept=accept is not None, as_json=as_json)

    return asyncio.run(work())


async def _tell(engine: Engine, ids: list[str], *, to: str | None, processes: int, accept: bool, as_json: bool) -> int:
    fine = {VerdictKind.SAFE, VerdictKind.SAFE_ARGS_DIFFER} if accept else {VerdictKind.SAFE}
    code, bad = 0, 0
    for run_id in ids:
        try:
            verdict = await engine.check(run_id, to=to, processes=processes)
        except PerdureError as error:
            say(f"error: {error}")
            code = USAGE
            continue
        bad += verdict.kind not in fine
        if as_json:
            print_json(_facts(verdict))
        else:
            print_line(str(verdict))
    if not as_json:
        say(f"{len(ids)} checked, {bad} found")
    return code or (FAILED if bad else 0)


def _facts(verdict: Verdict) -> dict[str, object]:
    return {name: getattr(verdict, name) for name in Verdict.__struct_fields__} | {"text": str(verdict)}
