"""``perdure rollback``."""

from __future__ import annotations

import click

from perdure.api.version_reading import short
from perdure.cli import options
from perdure.cli.output import print_line
from perdure.cli.session import act


@click.command("rollback")
@click.argument("workflow", metavar="WORKFLOW")
@options.database
@click.option("--reason", default="rolled back", show_default=True, help="Why; kept in the record of changes.")
@click.option("--actor", help="Who acts; kept in the record. The system user by default.")
def command(*, workflow: str, db: str, actor: str | None, reason: str) -> None:
    """Withdraw the newest version of a workflow: new runs start on the one before. Runs that have it go on.

    It is needed where old code is deployed again as it was, for that publishes nothing. To undo it: perdure versions
    restore.
    """
    gone, now = act(db, lambda engine: engine.versions.rollback(workflow, reason=reason, actor=actor))
    print_line(
        f"{workflow}@{gone.label} ({short(gone.sha256)}) is withdrawn; "
        f"new runs start on {now.label} ({short(now.sha256)})"
    )
