"""``perdure routes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perdure.cli import options
from perdure.cli.output import print_json, print_line
from perdure.cli.session import act, read
from perdure.cli.versions import percent, print_routes
from perdure.errors import UsageError

if TYPE_CHECKING:
    from perdure.api.engine import Engine
    from perdure.api.version_info import LabelInfo, RouteInfo


@click.group("routes")
def command() -> None:
    """Say which versions of a workflow new runs start on.

    Which queue a run is put on is not meant here: that is said where an engine is made.
    """


@command.command("show")
@click.argument("workflow", metavar="WORKFLOW")
@options.database
@options.as_json
def show(*, workflow: str, db: str, as_json: bool) -> None:
    """Show how new runs are divided among versions, by channel. With --json one object per route."""

    async def work(engine: Engine) -> tuple[tuple[RouteInfo, ...], tuple[LabelInfo, ...]]:
        return await engine.routes.show(workflow), await engine.versions.labels(workflow)

    routes, labels = read(db, work)
    if as_json:
        for route in routes:
            print_json(route)
        return
    if all(route.channel != "default" for route in routes):
        newest = next((label.label for label in labels if label.is_newest), None)
        print_line(f"new runs of {workflow} start on {'nothing' if newest is None else f'the newest, {newest}'}")
    if routes:
        print_routes(routes)


@command.command("set")
@click.argument("workflow", metavar="WORKFLOW")
@click.argument("weights", metavar="V=W...", nargs=-1, required=True, type=options.PAIR)
@options.database
@options.channel
@options.acting_for_a_reason
def set_(
    *, workflow: str, weights: tuple[tuple[str, str], ...], db: str, channel: str, actor: str | None, reason: str
) -> None:
    """Divide new runs: `perdure routes set order 2.0.0=5 1.3.0=95 --reason canary`.

    Versions that are published later get none of them until the route is changed, promoted or cleared.
    """
    given = _weights(weights)
    route = act(db, lambda engine: engine.routes.set(workflow, given, channel=channel, reason=reason, actor=actor))
    print_line(_told(route))


@command.command("promote")
@click.argument("workflow", metavar="WORKFLOW")
@options.database
@options.channel
@options.acting_for_a_reason
def promote(*, workflow: str, db: str, channel: str, actor: str | None, reason: str) -> None:
    """Let new runs start on the newest version: the default route is cleared."""
    route = act(db, lambda engine: engine.routes.promote(workflow, channel=channel, reason=reason, actor=actor))
    print_line(_told(route))


@command.command("clear")
@click.argument("workflow", metavar="WORKFLOW")
@options.database
@options.channel
@options.acting_for_a_reason
def clear(*, workflow: str, db: str, channel: str, actor: str | None, reason: str) -> None:
    """Take a route away; starts that name its channel are refused, unless that is the default."""
    route = act(db, lambda engine: engine.routes.clear(workflow, channel=channel, reason=reason, actor=actor))
    print_line(_told(route))


def _weights(given: tuple[tuple[str, str], ...]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for version, text in given:
        if version in weights:
            message = f"{version} is given twice"
            raise UsageError(message)
        try:
            weights[version] = float(text)
        except ValueError:
            message = f"{version}={text}: the weight must be a number"
            raise UsageError(message) from None
    return weights


def _told(route: RouteInfo) -> str:
    arms = ", ".join(f"{arm.label} {percent(arm.share) or '0%'}" for arm in route.arms)
    if not arms and route.channel == "default":
        arms = "the newest"
    return f"{route.workflow}, channel {route.channel}: {arms or 'no route'}"
