"""One attempt of a transactional step in a database apart from the engine's.

    begin; the step's key is inserted, or its stored result found; the function; the result is stored; commit

The key is the lock: of two workers that execute one step, one of which has lost the run and does not know it yet, the
second waits for the first and finds its result. Nothing here depends on a clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from perdure.guard import own
from perdure.guard.attempted import Attempted, waits
from perdure.guard.database import Database
from perdure.guard.link import run, run_async
from perdure.guard.request import abandoning, closing, opening
from perdure.guard.standing import standing, standing_async
from perdure.kernel.scope import CURRENT

if TYPE_CHECKING:
    from perdure.kernel.definition import StepDefinition


def perform(attempt: Attempted, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a blocking function as a transaction, or return what it returned before."""
    database, found_at = attempt.database, standing(attempt)
    if found_at.tables is not None:
        return own.perform(attempt, found_at.tables, function, args, kwargs, keyed=found_at.keyed)
    with database.opened() as (over, connection):
        over.begin()
        found = attempt.found(run(over, opening(over.dialect, attempt.request_id, None)))
        if found is not None:
            over.rollback()
            return found.value
        try:
            with database.lent(over, connection):
                value = function(*args, **kwargs)
            run(over, closing(over.dialect, attempt.request_id, attempt.encoded(value)))
            attempt.check_wanted()
        except BaseException:
            run(over, abandoning())
            raise
        try:
            over.commit()
        except Exception as error:  # noqa: BLE001 - whatever it is, it may have happened
            lost = error
        else:
            return value
    return _resolve(attempt, lost)


def _resolve(attempt: Attempted, lost: Exception) -> Any:
    """See, through a new connection, what became of a commit whose answer was lost.

    Its transaction may still be under way in the server; the insert of the same key waits for its end.
    """
    for wait_s in waits():
        try:
            with attempt.database.opened() as (over, _):
                over.begin()
                found = attempt.found(run(over, opening(over.dialect, attempt.request_id, None)))
                over.rollback()
        except Exception:  # noqa: BLE001 - the database is away
            time.sleep(wait_s)
            continue
        if found is None:
            raise lost
        return found.value
    raise attempt.unknown from lost


async def perform_async(
    attempt: Attempted, function: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call an async function as a transaction, or return what it returned before."""
    database, found_at = attempt.database, await standing_async(attempt)
    if found_at.tables is not None:
        return await own.perform_async(attempt, found_at.tables, function, args, kwargs, keyed=found_at.keyed)
    async with database.opened_async() as (over, connection):
        await cast("Awaitable[None]", over.begin())
        found = attempt.found(await run_async(over, opening(over.dialect, attempt.request_id, None)))
        if found is not None:
            await cast("Awaitable[None]", over.rollback())
            return found.value
        try:
            with database.lent(over, connection):
                value = await function(*args, **kwargs)
            await run_async(over, closing(over.dialect, attempt.request_id, attempt.encoded(value)))
            attempt.check_wanted()
        except BaseException:
            await run_async(over, abandoning())
            raise
        try:
            await cast("Awaitable[None]", over.commit())
        except Exception as error:  # noqa: BLE001 - whatever it is, it may have happened
            lost = error
        else:
            return value
    return await _resolve_async(attempt, lost)


async def _resolve_async(attempt: Attempted, lost: Exception) -> Any:
    for wait_s in waits():
        try:
            async with attempt.database.opened_async() as (over, _):
                await cast("Awaitable[None]", over.begin())
                found = attempt.found(await run_async(over, opening(over.dialect, attempt.request_id, None)))
                await cast("Awaitable[None]", over.rollback())
        except Exception:  # noqa: BLE001 - the database is away
            await asyncio.sleep(wait_s)
            continue
        if found is None:
            raise lost
        return found.value
    raise attempt.unknown from lost


def transactional(database: Database[Any], definition: StepDefinition) -> Callable[..., Any]:
    """Return a step's function as an attempt calls it: inside a transaction."""
    function = definition.function

    def attempted() -> Attempted:
        return Attempted(database, CURRENT.get(), definition.signature.returns)

    if definition.is_async:

        async def call_async(*args: Any, **kwargs: Any) -> Any:
            return await perform_async(attempted(), function, args, kwargs)

        return call_async

    def call(*args: Any, **kwargs: Any) -> Any:
        return perform(attempted(), function, args, kwargs)

    return call
