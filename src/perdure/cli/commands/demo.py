"""``perdure demo``."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perdure.demo.display import Stage, table
from perdure.demo.play import play

if TYPE_CHECKING:
    from perdure.demo.play import Outcome, Scene, Tell


@click.command("demo")
@click.option(
    "--dir", "folder", metavar="D", type=click.Path(file_okay=False, path_type=Path),
    help="Keep database and ledger in this folder; else they are removed at the end.",
)  # fmt: skip
@click.option("--orders", metavar="N", type=int, default=300, show_default=True, help="Orders to fulfil.")
@click.option(
    "--seed", metavar="S", type=int, default=1, show_default=True, help="Decides what fails outside, and when."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document and nothing else.")
@click.pass_context
def command(context: click.Context, *, folder: Path | None, orders: int, seed: int, as_json: bool) -> None:
    """Fulfil orders once each while their workers are killed.

    Exit code 1 if the outside ledger does not balance.
    """
    stage = Stage(sys.stderr)
    try:
        outcome = asyncio.run(_stoppable(folder, orders, seed, _nothing if as_json else stage))
    finally:
        if not as_json:
            stage.close()
    click.echo(json.dumps(outcome.document()) if as_json else table(outcome), nl=as_json)
    if folder is not None and not as_json:
        click.echo(f"Kept in {folder}: shop.db, ledger.db, processes.log")
    context.exit(0 if outcome.balanced else 1)


async def _stoppable(folder: Path | None, orders: int, seed: int, tell: Tell) -> Outcome:
    """Play; a request to stop is a cancellation, so that no process and no temporary folder is left."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await play(orders=orders, seed=seed, folder=folder, tell=tell)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _nothing(scene: Scene) -> None:
    """Show nothing."""
