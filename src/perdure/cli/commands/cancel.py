"""``perdure cancel``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perdure.cli import options
from perdure.cli.acts import on_each
from perdure.cli.telling import FAILED
from perdure.model.status import Status

if TYPE_CHECKING:
    from perdure.api.engine import Engine


@click.command("cancel")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@options.database
@options.acting
def command(*, ids: tuple[str, ...], db: str, actor: str | None, reason: str | None) -> int:
    """Ask runs to stop. A body gets CancelledError at its next await, and may clean up.

    Exit code 1 if a run had ended before, otherwise than cancelled.
    """

    async def cancel(engine: Engine, run_id: str) -> tuple[str, int]:
        if await engine.cancel(run_id, actor=actor, reason=reason):
            return f"run {run_id}: asked to stop", 0
        status = await engine.get(run_id).status()
        return f"run {run_id}: had ended before, {status}", 0 if status == Status.CANCELLED else FAILED

    return on_each(db, ids, cancel)
