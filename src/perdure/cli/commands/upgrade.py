"""``perdure upgrade``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perdure.cli import options
from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.session import act, read
from perdure.cli.telling import FAILED, say
from perdure.errors import UsageError
from perdure.model.status import LIVE, Status

if TYPE_CHECKING:
    from perdure.api.engine import Engine
    from perdure.api.upgrades import UpgradePlan, UpgradeResult

_STATES = [*sorted(status.value for status in LIVE), Status.FAILED.value]


@click.group("upgrade")
def command() -> None:
    """Bind runs to another version: by a plan that names each of them, and by nothing else."""


def _reason(wanted: Any) -> Any:
    wanted = click.option("--reason", required=True, help="Why; kept in the log of each run.")(wanted)
    return click.option("--actor", help="Who acts; kept in the log. The system user by default.")(wanted)


def _wait(wanted: Any) -> Any:
    return click.option("--wait", type=options.DURATION, default="10s", show_default=True,
                        help="How long to wait for a run that is inside a step.")(wanted)  # fmt: skip


@command.command("plan")
@click.option("--id", "ids", metavar="ID", multiple=True, help="Run to upgrade; may be repeated.")
@click.option("--workflow", metavar="NAME", help="Or: runs of this workflow,")
@click.option("--from", "from_version", metavar="V", help="that are bound to this version,")
@click.option("--status", multiple=True, type=click.Choice(_STATES),
              help="and are in this state; may be repeated. By default all that have not ended.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="At most so many.")
@click.option("--to", required=True, metavar="V", help="The version: a label, the beginning of a hash, or a range.")
@click.option("--actor", help="Who makes the plan. The system user by default.")
@options.database
@options.as_json
def plan(
    *, ids: tuple[str, ...], workflow: str | None, from_version: str | None, status: tuple[str, ...], limit: int,
    to: str, actor: str | None, db: str, as_json: bool,
) -> int:  # fmt: skip
    """Check runs against a version and keep what was found. Changes no run.

    Exit code 1 if something was found.
    """

    async def work(engine: Engine) -> UpgradePlan:
        return await engine.upgrades.plan(
            ids=ids or None, workflow=workflow, from_version=from_version, status=status or None, limit=limit, to=to,
            actor=actor,
        )  # fmt: skip

    made = act(db, work)
    _show(made, as_json=as_json)
    unsafe = sum(not run.verdict.is_safe for run in made.runs)
    if not as_json:
        say(f"{len(made.runs)} checked, {unsafe} found; apply it with: perdure upgrade apply {made.id} --reason ...")
    return FAILED if unsafe else 0


@command.command("status")
@click.argument("plan_id", metavar="PLAN")
@options.database
@options.as_json
def status(*, plan_id: str, db: str, as_json: bool) -> None:
    """Show a plan as it stands now."""

    async def work(engine: Engine) -> UpgradePlan:
        return await engine.upgrades.status(plan_id)

    _show(read(db, work), as_json=as_json)


@command.command("apply")
@click.argument("plan_id", metavar="PLAN")
@_reason
@click.option("--accept", multiple=True, type=click.Choice(["args-differ"]),
              help="Also take runs of which a step would be called with other arguments.")  # fmt: skip
@click.option("--map", "names", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="File of lines old=new: recorded name of a step, and the name the version calls it by.")  # fmt: skip
@click.option("--from-step", metavar="OP", help="Drop what is recorded from this operation on, so that it is redone.")
@click.option("--force", metavar="ID", multiple=True, help="Take this run whatever is found; may be repeated.")
@_wait
@options.database
@options.as_json
def apply(
    *, plan_id: str, reason: str, actor: str | None, accept: tuple[str, ...], names: Path | None,
    from_step: str | None, force: tuple[str, ...], wait: Any, db: str, as_json: bool,
) -> int:  # fmt: skip
    """Bind the runs of a plan to its version, one by one. Done twice it does nothing more.

    Exit code 1 if a run was left as it is.
    """
    renamed = {} if names is None else _names(names)

    async def work(engine: Engine) -> list[UpgradeResult]:
        return await engine.upgrades.apply(
            plan_id, reason=reason, actor=actor, accept=accept, map=renamed, from_step=from_step, force=force, wait=wait
        )  # fmt: skip

    results = act(db, work)
    for result in results:
        if as_json:
            print_json(_result(result))
        else:
            print_line(str(result))
    left = sum(result.outcome not in ("applied", "done") for result in results)
    if not as_json:
        say(f"{len(results) - left} done, {left} left as they are")
    return FAILED if left else 0


@command.command("revert")
@click.argument("run_id", metavar="ID")
@_reason
@_wait
@options.database
def revert(*, run_id: str, reason: str, actor: str | None, wait: Any, db: str) -> None:
    """Bind a run to the version it came from, while it has recorded nothing on the other."""

    async def work(engine: Engine) -> UpgradeResult:
        return await engine.upgrades.revert(run_id, reason=reason, actor=actor, wait=wait)

    print_line(str(act(db, work)))


def _names(file: Path) -> dict[str, str]:
    """Return what a file says steps are called by now."""
    names: dict[str, str] = {}
    for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
        if line.strip():
            old, sign, new = (part.strip() for part in line.partition("="))
            if not (old and sign and new):
                message = f"{file}, line {number}: not of the form old=new"
                raise UsageError(message)
            names[old] = new
    return names


def _show(plan: UpgradePlan, *, as_json: bool) -> None:
    if as_json:
        print_json(plan)
        return
    print_line(f"plan {plan.id}: {plan.workflow} to {plan.to}, by {plan.actor}")
    rows = [(run.run_id, run.state, run.verdict.kind, str(run.verdict).partition(": ")[2]) for run in plan.runs]
    print_table(("run", "state", "verdict", "found"), rows)


def _result(result: UpgradeResult) -> dict[str, Any]:
    error = None if result.error is None else {"code": result.error.code, "text": str(result.error)}
    return {
        "run_id": result.run_id, "outcome": result.outcome, "text": result.text, "verdict": result.verdict,
        "error": error,
    }  # fmt: skip
