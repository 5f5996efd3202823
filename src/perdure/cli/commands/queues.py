"""``perdure queues``."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from perdure.cli import options
from perdure.cli.output import print_facts, print_json, print_line, print_table
from perdure.cli.session import act, read
from perdure.errors import InvalidValue
from perdure.model.duration import microseconds
from perdure.model.queue import Rate

if TYPE_CHECKING:
    from perdure.api.engine import Engine
    from perdure.api.queues import QueueInfo

_RATE = re.compile(r"(\d+)\s*/\s*(.+)")
NONE = "none"


class LimitType(options.ParamType):
    """A whole number, or ``none`` for no limit."""

    name = "N|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or the word."""
        if value == NONE or isinstance(value, int):
            return value
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a whole number nor 'none'", param, ctx)


class RateType(options.ParamType):
    """So many in a span, such as ``100/1m``, or ``none``."""

    name = "N/SPAN|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the rate, or the word."""
        if value == NONE or isinstance(value, Rate):
            return value
        found = _RATE.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is neither a rate such as 100/1m nor 'none'", param, ctx)
        try:
            return Rate(int(found[1]), per=found[2])
        except InvalidValue as error:
            self.fail(str(error), param, ctx)


class SpanType(options.ParamType):
    """A duration, or ``none``."""

    name = "SPAN|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the span, or the word."""
        if value != NONE:
            try:
                microseconds(value)
            except InvalidValue as error:
                self.fail(str(error), param, ctx)
        return value


@click.group("queues")
def command() -> None:
    """Look at queues, set their limits, pause and resume them."""


@command.command("list")
@options.database
@options.as_json
def list_(*, db: str, as_json: bool) -> None:
    """List the queues that have settings or runs that have not ended. With --json one object per line."""
    found = read(db, lambda engine: engine.queues())
    if as_json:
        for info in found:
            print_json(info)
        return
    head = ("QUEUE", "DUE", "LATER", "RUNNING", "OLDEST", "SLOTS", "RATE", "STATE")
    print_table(head, [_row(info) for info in found])


@command.command("show")
@click.argument("name", metavar="QUEUE")
@options.database
@options.as_json
def show(*, name: str, db: str, as_json: bool) -> None:
    """Show a queue: its settings, what is in it, and who changed it last."""
    info = read(db, lambda engine: engine.queue(name).info())
    if as_json:
        print_json(info)
        return
    facts = [
        ("queue", info.name), ("state", "paused" if info.paused else "open"), ("due", str(info.due)),
        ("later", str(info.later)), ("running", str(info.running)), ("oldest", _age(info)),
        ("concurrency", _limit(info.concurrency)), ("per worker", _limit(info.concurrency_per_worker)),
        ("per key", _limit(info.concurrency_per_key)), ("slots", str(info.slots)), ("rate", _rate(info)),
        ("ageing", NONE if info.ageing is None else f"{info.ageing.total_seconds():g}s"),
        ("fair", "yes" if info.fair else "no"),
        ("waiting", "keeps its slot" if info.hold_while_waiting else "gives it up"),
    ]  # fmt: skip
    print_facts(facts)
    if info.changes:
        print_table(
            ("N", "AT", "ACTOR", "REASON", "CHANGED"),
            [[one.n, one.at, one.actor, one.reason, _changed(one.changed)] for one in info.changes],
        )


@command.command("set")
@click.argument("name", metavar="QUEUE")
@options.database
@click.option("--concurrency", type=LimitType(), help="Most runs at once, by all workers together.")
@click.option("--concurrency-per-worker", type=LimitType(), help="Most runs at once in one worker.")
@click.option("--concurrency-per-key", type=LimitType(), help="Most runs at once with one partition key.")
@click.option("--rate", type=RateType(), help="Most claims in a span of time, such as 100/1m.")
@click.option("--ageing", type=SpanType(), help="Span in which a waiting run gains a level of priority.")
@click.option("--fair/--no-fair", default=None, help="Partition keys take turns.")
@click.option("--hold-while-waiting/--no-hold-while-waiting", default=None,
              help="A run that waits keeps its place in the limits.")  # fmt: skip
@options.acting
def set_(*, name: str, db: str, actor: str | None, reason: str | None, **settings: Any) -> None:
    """Set limits of a queue; those not given stay, 'none' takes one away.

    From the return on every claim of every worker obeys. Runs that workers have are counted, and go on.
    """
    given: Any = {key: None if value == NONE else value for key, value in settings.items() if value is not None}

    async def work(engine: Engine) -> None:
        await engine.queue(name).set(actor=actor, reason=reason, **given)

    act(db, work)
    print_line(f"queue {name}: set")


@command.command("pause")
@click.argument("name", metavar="QUEUE")
@options.database
@options.acting
def pause(*, name: str, db: str, actor: str | None, reason: str | None) -> None:
    """Claim nothing from a queue until it is resumed. Runs that workers have go on."""
    act(db, lambda engine: engine.queue(name).pause(actor=actor, reason=reason))
    print_line(f"queue {name}: paused; nothing of it is started until it is resumed")


@command.command("resume")
@click.argument("name", metavar="QUEUE")
@options.database
@options.acting
def resume(*, name: str, db: str, actor: str | None, reason: str | None) -> None:
    """Let runs of a queue be claimed again."""
    act(db, lambda engine: engine.queue(name).resume(actor=actor, reason=reason))
    print_line(f"queue {name}: resumed")


def _row(info: QueueInfo) -> list[Any]:
    slots = f"{info.slots}/{info.concurrency}" if info.concurrency is not None else str(info.slots or "")
    state = "paused" if info.paused else ""
    return [info.name, info.due, info.later, info.running, _age(info), slots, _rate(info, ""), state]


def _age(info: QueueInfo) -> str:
    if info.oldest_due_at is None:
        return ""
    return f"{max((datetime.now(UTC) - info.oldest_due_at).total_seconds(), 0):.0f}s"


def _limit(value: int | None) -> str:
    return NONE if value is None else str(value)


def _rate(info: QueueInfo, nothing: str = NONE) -> str:
    if info.rate is None:
        return nothing
    return f"{info.starts} of {info.rate.limit} in {microseconds(info.rate.per) / 1_000_000:g}s"


def _changed(changed: dict[str, tuple[int | None, int | None]]) -> str:
    return ", ".join(f"{name}: {_limit(before)} > {_limit(after)}" for name, (before, after) in changed.items())
