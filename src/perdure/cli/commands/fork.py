"""``perdure fork``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perdure.cli import options
from perdure.cli.output import print_line
from perdure.cli.session import act

if TYPE_CHECKING:
    from perdure.api.engine import Engine


@click.command("fork")
@click.argument("run_id", metavar="ID")
@click.option("--from-step", metavar="OP",
              help="Do not copy this operation, nor what was recorded after it. By default all is copied but the way"
                   " the run has ended; of a failed run, what stands before the step that failed.")  # fmt: skip
@click.option("--to", metavar="V", help="Version of the new run, checked first; by default the same.")
@click.option("--id", "new_id", metavar="ID", help="Id of the new run; a new one by default.")
@options.database
@options.acting
def command(
    *, run_id: str, from_step: str | None, to: str | None, new_id: str | None, db: str, actor: str | None,
    reason: str | None,
) -> None:  # fmt: skip
    """Start a new run that begins with what another one has recorded, and print its id."""

    async def work(engine: Engine) -> str:
        run = await engine.fork(run_id, id=new_id, from_step=from_step, to=to, actor=actor, reason=reason)
        return run.id

    print_line(act(db, work))
