"""``perdure gc``."""

from __future__ import annotations

from typing import Any

import click

from perdure.api.version_reading import short
from perdure.cli import options
from perdure.cli.output import print_json, print_line
from perdure.cli.session import act


@click.group("gc")
def command() -> None:
    """Remove what nothing needs."""


@command.command("versions")
@options.database
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--keep", type=click.IntRange(0), default=10, show_default=True,
              help="So many of the newest versions of each workflow stay.")  # fmt: skip
@click.option("--closed-for", type=options.DURATION, default="7d", show_default=True,
              help="How long a version has to be closed.")  # fmt: skip
@options.acting
@options.as_json
def versions(
    *, db: str, dry_run: bool, keep: int, closed_for: Any, actor: str | None, reason: str | None, as_json: bool
) -> None:
    """Remove the code of closed versions that no run is bound to. Their labels and their record stay."""
    found = act(
        db,
        lambda engine: engine.versions.collect(
            keep=keep, closed_for=closed_for, dry_run=dry_run, reason=reason or "collected", actor=actor
        ),
    )
    if as_json:
        print_json(found)
        return
    for sha256 in found.versions:
        print_line(f"version {short(sha256)}{' would be' if dry_run else ''} purged")
    would = "would be " if dry_run else ""
    print_line(f"{len(found.versions)} versions and {found.blobs} files, {found.bytes} bytes, {would}removed")
