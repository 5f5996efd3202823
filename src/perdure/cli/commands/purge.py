"""``perdure purge``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perdure.cli import options
from perdure.cli.acts import on_each

if TYPE_CHECKING:
    from perdure.api.engine import Engine


@click.command("purge")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@options.database
@options.acting
def command(*, ids: tuple[str, ...], db: str, actor: str | None, reason: str | None) -> int:
    """Delete the history of runs that have ended. Their ids stay taken, with who purged them and why."""

    async def purge(engine: Engine, run_id: str) -> tuple[str, int]:
        await engine.purge(run_id, actor=actor, reason=reason)
        return f"run {run_id}: history purged, its id stays taken", 0

    return on_each(db, ids, purge)
