"""``perdure retry``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perdure.cli import options
from perdure.cli.acts import on_each

if TYPE_CHECKING:
    from perdure.api.engine import Engine


@click.command("retry")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@options.database
@options.acting
def command(*, ids: tuple[str, ...], db: str, actor: str | None, reason: str | None) -> int:
    """Let failed or parked runs go on. Completed steps keep their results; what made the run fail is tried again."""

    async def retry(engine: Engine, run_id: str) -> tuple[str, int]:
        return await engine.retry(run_id, actor=actor, reason=reason), 0

    return on_each(db, ids, retry)
