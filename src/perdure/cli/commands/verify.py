"""``perdure verify``."""

from __future__ import annotations

from pathlib import Path

import click

from perdure.cli import options
from perdure.cli.output import print_json, print_line
from perdure.verify.database import verify


@click.command("verify")
@options.database
@click.option(
    "--acks",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with one run id per line: each must be there.",
)
@options.as_json
def command(*, db: str, acks: Path | None, as_json: bool) -> int:
    """Check every invariant of the stored data.

    Reads the tables as they are, in one snapshot, beside workers that run. Exit code 1 and a list,
    if anything is broken.
    """
    acknowledged = [] if acks is None else acks.read_text("utf-8").split()
    report = verify(db, acknowledged)
    if as_json:
        print_json(report.as_data())
    else:
        for finding in report.findings:
            print_line(str(finding))
        found = "nothing is broken" if report.sound else f"{len(report.findings)} findings"
        print_line(f"{report.runs} runs, {report.events} events: {found}")
    return 0 if report.sound else 1
