"""``perdure worker``."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import TYPE_CHECKING, Any

import click

from perdure.api.engine import Engine
from perdure.cli import logs, options, target
from perdure.cli.checking import log_unfit
from perdure.cli.serving import opened, serve, until_stopped
from perdure.errors import StoreUnavailable, UsageError
from perdure.model.duration import microseconds
from perdure.model.url import shown_url
from perdure.store.base import backend_of

if TYPE_CHECKING:
    from perdure.cli.serving import Stop
    from perdure.model.cache import CacheStats

logger: logging.Logger = logging.getLogger("perdure.cli")
YOUNG, OLD = 100_000, 50
"""Thresholds of the cyclic collector. What an engine makes by the thousand has no cycles and is freed at once; the
default of 700 made the collector look for them all the time."""


@click.command("worker")
@click.argument("what", metavar="TARGET...", nargs=-1, required=True)
@options.database
@click.option("--queue", "queues", metavar="Q", multiple=True, default=("default",), show_default=True,
              help="Queue to serve; may be repeated.")  # fmt: skip
@click.option("--weight", "weights", metavar="Q=N", multiple=True, type=options.PAIR,
              help="Share of this worker that a queue gets beside the others, else 1; may be repeated.")  # fmt: skip
@click.option("--route", "routes", metavar="PATTERN=Q", multiple=True, type=options.PAIR,
              help="Queue that steps of these names are executed on, such as media.*=slow; repeatable.")  # fmt: skip
@click.option("--concurrency", type=click.IntRange(1), default=100, show_default=True, help="Runs active at once.")
@click.option("--threads", type=click.IntRange(1), default=32, show_default=True, help="Threads for sync steps.")
@click.option("--lease", type=options.DURATION, default="10s", show_default=True,
              help="How long a silent worker keeps its runs.")  # fmt: skip
@click.option("--grace", type=options.DURATION, default="30s", show_default=True,
              help="How long steps in flight may go on after a request to stop.")  # fmt: skip
@click.option("--durability", type=click.Choice(["host", "quorum", "process"]), default="host", show_default=True,
              help="host survives power cuts; quorum the loss of the primary; process kill -9 only.")  # fmt: skip
@click.option(
    "--check",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="First replay the N newest live runs with this code, for 10 s at most, and log what it cannot carry on.",
)
@options.sources
@click.option("--on-unbumped", type=click.Choice(["auto", "refuse"]), default="auto", show_default=True,
              help="A change that kept its number is labelled apart, or the worker does not start.")  # fmt: skip
@click.option("--registration", type=click.Choice(["worker", "published-only"]), default="worker", show_default=True,
              help="The worker makes its versions known, or has to find them published.")  # fmt: skip
@options.trusting
@click.option("--new-versions", type=click.Choice(["default", "hold"]), default="default", show_default=True,
              help="New runs start on what is newest, or only once it is promoted.")  # fmt: skip
@click.option("--promote", is_flag=True,
              help="Let new runs start on this worker's versions, also where they are not the newest.")  # fmt: skip
@click.option("--max-hosts", type=click.IntRange(0, 1000), default=4, show_default=True,
              help="Version hosts at once; 0: none, and runs of other versions are parked.")  # fmt: skip
@click.option("--host-idle", type=options.DURATION, default="30s", show_default=True,
              help="After how long without work a version host ends.")  # fmt: skip
@click.option("--foreign-delay", type=options.DURATION, default="2s", show_default=True,
              help="How long runs of another version wait for a worker that was deployed with it.")  # fmt: skip
@click.option("--environments", type=click.Choice(["current", "uv"]), default="current", show_default=True,
              help="Where dependencies of old versions are: here, or also in what uv builds.")  # fmt: skip
@click.option("--name", metavar="N", help="Name shown to people; host and process id by default.")
@options.log_level("info")
def command(
    *, what: tuple[str, ...], db: str, grace: Any, log_level: str, check: int, promote: bool, packages: tuple[str, ...],
    queues: tuple[str, ...], weights: tuple[tuple[str, str], ...], routes: tuple[tuple[str, str], ...], **settings: Any,
) -> int:  # fmt: skip
    """Execute runs until told to stop.

    TARGET is package.module:workflow, package.module or file.py[:workflow]. SIGTERM or Ctrl-C: take no more runs, let
    steps in flight finish within --grace, hand the rest to other workers, exit code 0. A second signal stops at once,
    exit code 130. Exit code 1: the engine cannot go on, or the stop took 5 s longer than --grace allows. A database
    that is away is waited for, also at the start.
    """
    logs.configure(log_level)
    found = [target.load(text) for text in what]
    engine = Engine(
        db, [one.given for one in found], grace=grace, queues=_weighed(queues, weights), packages=packages or None,
        routes=dict(routes), **settings,
    )  # fmt: skip
    names = sorted({workflow.name for one in found for workflow in one.workflows})

    async def begin() -> None:
        if check:
            await log_unfit(db, [one.given for one in found], names, check)
        await engine.open()

    async def work(stop: Stop) -> None:
        if backend_of(engine.url) == "sqlite":  # a file that cannot be used is not away
            await begin()
        elif not await opened(begin, stop):
            logger.info("stopped before the database was there")
            return
        name = engine.worker_name
        try:
            await _execute(engine, queues, names, stop, promote=promote)
        finally:
            await engine.close()
        logger.info("worker %s has stopped (%s)", name, "asked to" if stop.by is None else stop.by.name)

    def told() -> None:
        logger.debug("stopping: steps in flight may finish within %s; a second signal stops at once", grace)

    _spare_the_collector()
    serve(work, microseconds(grace) / 1e6, told)
    return 0


async def _execute(engine: Engine, queues: tuple[str, ...], names: list[str], stop: Stop, *, promote: bool) -> None:
    logger.info(
        "worker %s is ready: %s, queues %s, workflows %s",
        engine.worker_name, shown_url(engine.url), ",".join(queues), ",".join(names),
    )  # fmt: skip
    if promote:
        await _promote(engine, names)
    await _tell_other_runs(engine)
    try:
        await until_stopped(asyncio.Event().wait(), engine, stop)
    finally:
        stats = engine.stats()
        logger.debug("known here: ends of logs %s; definitions %s", _known(stats.log_ends), _known(stats.definitions))


def _known(cache: CacheStats) -> str:
    return "never wanted" if cache.rate is None else f"{cache.rate:.1%} of {cache.hits + cache.misses:,}"


async def _promote(engine: Engine, names: list[str]) -> None:
    for name in names:
        label = engine.carried_version(name)
        if label is None:
            continue
        route = await engine.routes.lead_to(
            name, label, reason=f"worker {engine.worker_name} was started to promote it"
        )
        if route is not None:
            logger.info("new %r runs start on %s", name, label)


async def _tell_other_runs(engine: Engine) -> None:
    try:
        for one in await engine.other_runs():
            logger.info("%s", one)
    except StoreUnavailable as error:  # the worker goes on; so does what is counted here
        logger.warning("the open runs of other versions were not counted: %s", error)


def _weighed(queues: tuple[str, ...], weights: tuple[tuple[str, str], ...]) -> dict[str, int]:
    """Return the queues with their weights."""
    weighed = dict.fromkeys(queues, 1)
    for name, text in weights:
        if name not in weighed:
            message = f"--weight {name}={text}: queue {name!r} is not served"
            raise UsageError(message, hint=f"add --queue {name}")
        if not text.isdecimal():
            message = f"--weight {name}={text}: the weight must be a whole number"
            raise UsageError(message)
        weighed[name] = int(text)
    return weighed


def _spare_the_collector() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, OLD, OLD)
