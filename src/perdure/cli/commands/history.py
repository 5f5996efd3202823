"""``perdure history``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perdure.api.reading import moment
from perdure.cli import options
from perdure.cli.output import cell, cut, print_json, print_table, when
from perdure.cli.session import read

if TYPE_CHECKING:
    from perdure.api.engine import Engine
    from perdure.api.reading import Event

SHORT = 40
_OWN = frozenset({"actor", "worker", "version", "python"})
_TIMES = frozenset({"next_at", "wake_at"})
_TAIL = 12
"""So much of a worker's id tells it from others: the beginning is a time."""


@click.command("history")
@click.argument("run_id", metavar="ID")
@options.database
@click.option("--full", is_flag=True, help="Do not cut long values off.")
@click.option("--export", "file", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True, writable=True),
              help="Write a history file instead, for checks of changed code; - for standard output.")  # fmt: skip
@options.as_json
def command(*, run_id: str, db: str, full: bool, file: str | None, as_json: bool) -> None:
    """Show a run's log: who did what, when, with what input and output. With --json one event per line."""
    if file is not None:
        _export(db, run_id, file)
        return

    async def work(engine: Engine) -> list[Event]:
        return await engine.get(run_id).history()

    events = read(db, work)
    if as_json:
        for event in events:
            print_json(event)
        return
    print_table(
        ("SEQ", "AT", "EVENT", "NAME", "ATTEMPT", "VERSION", "BY", "INPUT", "OUTPUT", "DETAIL"),
        [_row(event, full=full) for event in events],
    )


def _export(db: str, run_id: str, file: str) -> None:
    async def work(engine: Engine) -> str:
        return (await engine.get(run_id).recording()).dump()

    text = read(db, work)
    with click.open_file(file, "w", encoding="utf-8") as output:
        output.write(text)


def _row(event: Event, *, full: bool) -> list[Any]:
    output = event.result if event.error is None else event.error
    facts = {name: value for name, value in event.detail.items() if name not in _OWN and value not in (None, "")}
    if event.error is not None:
        facts.pop("error", None)  # its class, which the text begins with
    facts.update({name: when(moment(facts[name])) for name in _TIMES & facts.keys()})
    name = event.name or ""
    if event.op is not None:
        name = f"{name} [{event.op}]"
    values = [_cut(value, full=full) for value in (event.input, output)]
    detail = " ".join(filter(None, [event.state or "", *(f"{key}={cell(value)}" for key, value in facts.items())]))
    by = event.detail.get("actor") or (event.worker or "" if full else _tail(event.worker or ""))
    facts_cut = _cut(detail or None, full=full)
    return [event.seq, event.at, event.type, name, event.attempt or "", event.version, by, *values, facts_cut]


def _tail(worker: str) -> str:
    return worker if len(worker) <= _TAIL else f"…{worker[-_TAIL:]}"


def _cut(value: Any, *, full: bool) -> str:
    text = "" if value is None else cell(value)
    return text if full else cut(text, SHORT)
