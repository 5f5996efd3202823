"""``perdure list``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perdure.cli import options
from perdure.cli.output import cut, pairs, print_json, print_table
from perdure.cli.session import read
from perdure.cli.telling import say
from perdure.model.status import Status

if TYPE_CHECKING:
    from perdure.api.engine import Engine
    from perdure.api.reading import RunInfo


SHORT = 80


@click.command("list")
@options.database
@click.option(
    "--status", multiple=True, type=click.Choice([status.value for status in Status]), help="State; may be repeated."
)
@click.option("--workflow", metavar="NAME", help="Name of the workflow.")
@click.option("--version", metavar="V", help="Label of the version, or the beginning of its hash.")
@click.option("--queue", metavar="NAME", help="Queue.")
@click.option("--tag", multiple=True, type=options.PAIR, help="Tag the run must have; may be repeated.")
@click.option("--since", type=options.MOMENT, help="Recorded at or after; a time, or a span back from now.")
@click.option("--until", type=options.MOMENT, help="Recorded before.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
@click.option("--cursor", metavar="ID", help="Go on after this run.")
@options.as_json
def command(
    *, db: str, status: tuple[str, ...], workflow: str | None, version: str | None, queue: str | None,
    tag: tuple[tuple[str, str], ...], as_json: bool, **rest: Any,
) -> None:  # fmt: skip
    """List runs, newest first. With --json one object per line."""

    async def work(engine: Engine) -> list[RunInfo]:
        found = engine.list(
            status=status or None, workflow=workflow, version=version, queue=queue, tag=dict(tag), **rest
        )
        return [info async for info in found]

    runs = read(db, work)
    if as_json:
        for info in runs:
            print_json(info)
        return
    print_table(
        ("ID", "WORKFLOW", "VERSION", "STATUS", "QUEUE", "CREATED", "TAGS", "DETAIL"), [_row(info) for info in runs]
    )
    if len(runs) == rest["limit"]:
        say(f"more: perdure list ... --cursor {runs[-1].id}")


def _row(info: RunInfo) -> list[Any]:
    detail = cut(info.detail or "", SHORT)
    return [info.id, info.workflow, info.version, info.status, info.queue, info.created_at, pairs(info.tags), detail]
