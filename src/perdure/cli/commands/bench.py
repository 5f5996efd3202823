"""``perdure bench``."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perdure.bench.report import lines, summary
from perdure.bench.session import bench, check_groups
from perdure.bench.site import open_site
from perdure.bench.surroundings import surroundings, warnings
from perdure.bench.workload import ALL, FIGURES, Load
from perdure.cli import options
from perdure.cli.output import on_terminal, print_json, print_line
from perdure.errors import UsageError
from perdure.store.base import backend_of
from perdure.store.sqlite.place import path_of

if TYPE_CHECKING:
    from perdure.bench.session import Taken

_COUNT = click.IntRange(1, 1_000_000)


@click.command("bench")
@options.database
@click.option("--runs", type=_COUNT, default=Load().runs, show_default=True, help="Runs.")
@click.option("--steps", type=_COUNT, default=Load().steps, show_default=True, help="Steps of each run.")
@click.option("--concurrency", type=_COUNT, default=Load().concurrency, show_default=True, help="Runs active at once.")
@click.option("--rounds", type=_COUNT, default=Load().rounds, show_default=True, help="Times each figure is taken.")
@click.option("--only", metavar="NAMES", help=f"Of {', '.join(ALL)}; with commas. By default {', '.join(FIGURES)}.")
@click.option("--profile", is_flag=True, help="Also show where the processor time of a step goes.")
@options.as_json
def command(
    *, db: str, runs: int, steps: int, concurrency: int, rounds: int, only: str | None, profile: bool, as_json: bool
) -> None:
    """Measure speed and recovery on this machine and its disk.

    The database names the place: everything happens in a new folder beside it, or in new schemas of it on a server,
    removed at the end.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the folder is removed then, too
    load = Load(runs=runs, steps=steps, concurrency=concurrency, rounds=rounds, profile=profile)
    groups = [name.strip() for name in only.split(",")] if only is not None else list(FIGURES)
    check_groups(groups)
    folder = _folder(db)
    where = surroundings(folder)
    if not as_json:
        print_line(", ".join(f"{name} {value}" for name, value in where.items()))
        for warning in warnings(where):
            click.echo(f"warning: {warning}", err=True)
    found: list[Taken] = []
    for taken in bench(folder, load, groups, _nothing if as_json else _tell, db):
        found.append(taken)
        if not as_json:
            click.echo("\n".join(lines(taken)))
    if as_json:
        figures = {taken.group: [figure.document() for figure in taken.figures] for taken in found}
        print_json({"surroundings": where, "load": load, "figures": figures})
    else:
        print_line(summary(found))


def _folder(url: str) -> Path:
    """Return the folder in which to measure."""
    if backend_of(url) != "sqlite":
        folder = Path(tempfile.gettempdir())
        open_site(url, folder).bare().close()
        return folder
    path = path_of(url)
    if path is None:
        message = f"{url}: a database in memory cannot be measured"
        raise UsageError(message, hint="write --db sqlite:///file.db")
    return path.absolute().parent


def _tell(group: str) -> None:
    if on_terminal():
        click.echo(f"measuring: {group} ...\r", err=True, nl=False)
    else:
        click.echo(f"measuring: {group}", err=True)


def _nothing(group: str) -> None:
    """Show nothing."""
