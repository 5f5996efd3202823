"""``perdure copy``."""

from __future__ import annotations

import click

from perdure.cli.output import on_terminal, print_json, print_line
from perdure.model.url import shown_url
from perdure.transfer.copy import copy

_LEAST_BEHIND_S = 1.0


@click.command("copy")
@click.option("--from", "source", metavar="URL", required=True, help="The store to copy. It is not changed.")
@click.option("--to", "target", metavar="URL", required=True, help="An empty database, or a file that is not there.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(*, source: str, target: str, as_json: bool) -> None:
    """Copy a whole store into another database.

    Stop all workers of the source first; it is locked against writes meanwhile. Both are verified, and every row is
    compared. If the copy is cut off, run it again: it goes on where it was.
    """
    drawn = on_terminal()
    last = ""

    def tell(what: str, rows: int) -> None:
        nonlocal last
        if drawn:
            if last and what != last:
                click.echo(err=True)
            click.echo(f"\r{what}{f': {rows:,}' if rows else ''}", err=True, nl=False)
        elif what != last:
            click.echo(what, err=True)
        last = what

    done = copy(source, target, tell)
    if drawn:
        click.echo(err=True)
    if as_json:
        print_json({"from": shown_url(source), "to": shown_url(target), **done._asdict()})
        return
    print_line(
        f"{done.runs} runs, {done.events} events, {done.tombstones} tombstones, {done.messages} messages "
        f"{'copied, after an interruption,' if done.resumed else 'copied'} to {shown_url(target)}: nothing is broken"
    )
    if abs(done.behind_s) > _LEAST_BEHIND_S:
        way = "behind" if done.behind_s > 0 else "ahead of"
        print_line(f"the target's clock is {abs(done.behind_s):.1f} s {way} the source's: timers fire by so much "
                   f"{'later' if done.behind_s > 0 else 'earlier'}")  # fmt: skip
    print_line("start workers on the target only; nothing keeps a worker from going on with the source")
