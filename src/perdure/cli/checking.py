"""Checks of runs against code, for ``check`` and for the start of a worker."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from perdure.api.engine import Engine
from perdure.errors import PerdureError, RunNotFound, StoreUnavailable
from perdure.model.status import LIVE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

logger: logging.Logger = logging.getLogger("perdure.cli")
START_S = 10.0
"""How long a check may hold up the start of a worker."""


def checker(url: str, code: Iterable[Any], **settings: Any) -> Engine:
    """Return a client that reads a database and checks its runs against ``code``."""
    return Engine(url, list(code), worker=False, read_only=True, **settings)


async def log_unfit(url: str, code: Iterable[Any], names: Collection[str], most: int) -> None:
    """Log which of the newest live runs ``code`` cannot carry on. What goes wrong with it is logged.

    Args:
        url: database.
        code: workflows or modules.
        names: names of the workflows whose runs count.
        most: how many live runs are looked at.

    Raises:
        StoreUnavailable: the database is away.
    """
    checked = fit = 0
    try:
        async with checker(url, code) as engine:
            ids = [info.id async for info in engine.list(status=LIVE, limit=most) if info.workflow in names]
            try:
                async with asyncio.timeout(START_S):
                    for run_id in ids:
                        fit += await _fits(engine, run_id)
                        checked += 1
            except TimeoutError:
                logger.warning("no time to check more than %d of %d live runs against this code", checked, len(ids))
        logger.info("checked %d live runs against this code: it can carry on %d", checked, fit)
    except StoreUnavailable:
        raise
    except PerdureError as error:
        logger.warning("the live runs were not checked against this code: %s", error)


async def _fits(engine: Engine, run_id: str) -> bool:
    try:
        verdict = await engine.check(run_id, processes=1)
    except RunNotFound:
        return True  # it was purged meanwhile
    if not verdict.is_safe:
        logger.warning("this code does not fit run %s", verdict)
    return verdict.is_safe
