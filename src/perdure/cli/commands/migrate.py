"""``perdure migrate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perdure.api.health import health
from perdure.api.schema import schema_script
from perdure.cli import options
from perdure.cli.output import print_line
from perdure.cli.session import build
from perdure.model.url import shown_url

if TYPE_CHECKING:
    from perdure.api.engine import Engine


@click.command("migrate")
@options.database
@click.option("--print", "only_print", is_flag=True, help="Print the SQL that would be run; run nothing.")
@click.option("--after", type=click.IntRange(0), help="With --print: all migrations after this number, applied or not.")
def command(*, db: str, only_print: bool, after: int | None) -> None:
    """Bring a database to the schema of this release, or make it.

    Forward only; a newer schema is refused. Workers of the release before go on meanwhile, or are named if they cannot.
    """
    if only_print:
        click.echo(schema_script(db, after=after), nl=False)
        return

    async def work(engine: Engine) -> str:
        facts = (await health(engine.connection)).facts
        return next((fact.value for fact in facts if fact.name == "schema"), "none")

    print_line(f"{shown_url(db)}: schema {build(db, work)} is current")
