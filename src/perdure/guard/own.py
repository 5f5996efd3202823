"""One attempt of a transactional step in the engine's own database: the record is part of the transaction.

    begin; the function; the run's next place in the log is asked for; the record is inserted there; commit

The place is asked for when the function has returned, so that the run's log waits for two statements and not for the
function. The log's key is the fence: a worker that has lost the run meets the event of the next owner at that place,
and all is rolled back. An answer to COMMIT that is lost is looked up by the record's own commit id.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from perdure.errors import GuardBusy, GuardError, LeaseLost
from perdure.guard.attempted import Attempted, Found, uncancelled, waits
from perdure.guard.faults import busy, meaning
from perdure.guard.joint import Tables, appending, author, leaving
from perdure.guard.link import Link, run, run_async
from perdure.guard.request import closing, opening
from perdure.guard.statement import Savepoint, Steps

if TYPE_CHECKING:
    from perdure.model.event import Event


def perform(
    attempt: Attempted, tables: Tables, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *,
    keyed: bool,
) -> Any:  # fmt: skip
    """Call a blocking function as a transaction that records its result.

    Args:
        attempt: the step's.
        tables: the engine's.
        function: what to call.
        args: by position.
        kwargs: by name.
        keyed: whether there is a table of requests, in which its result may be found.
    """
    database = attempt.database
    with database.opened() as (over, connection):
        over.begin()
        found = run(over, _beginning(attempt, tables, keyed=keyed))
        if found is not None:
            over.rollback()
            return found.value
        with database.lent(over, connection):
            value = function(*args, **kwargs)
        run(over, _ending(attempt, tables, value, keyed=keyed))
        place = attempt.scope.reserve(attempt.payload(value))
        event = place.event.result()
        lost = _commit(over, tables, place, event)
    if lost is not None:
        _resolve(attempt, tables, place, event, lost)
    return value


def _commit(over: Link, tables: Tables, place: Any, event: Event) -> Exception | None:
    """Insert the record and commit; return the error if it is not known what became of that."""
    try:
        run(over, appending(tables, event))
        try:
            over.commit()
        except Exception as error:  # noqa: BLE001 - whatever it is, it may have happened
            return error
        place.taken = True
    finally:
        with suppress(Exception):
            run(over, leaving(tables))
    return None


def _resolve(attempt: Attempted, tables: Tables, place: Any, event: Event, lost: Exception) -> None:
    """See, through a new connection, what became of a commit whose answer was lost.

    Its transaction may still be under way in the server: an insert at the same place waits for its end.
    """
    for wait_s in waits():
        try:
            with attempt.database.opened() as (over, _):
                over.begin()
                committed = run(over, _is_taken(tables, event))
                over.rollback()
                if committed:
                    over.begin()
                    committed = run(over, author(tables, event)) == event.commit_id
                    over.rollback()
                run(over, leaving(tables))
        except Exception:  # noqa: BLE001 - the database is away
            time.sleep(wait_s)
            continue
        place.taken = committed
        if committed:
            return
        raise busy(lost, f"step {event.name!r}", tables.dialect) or lost from lost
    raise attempt.unknown from lost


async def perform_async(
    attempt: Attempted, tables: Tables, function: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...],
    kwargs: dict[str, Any], *, keyed: bool,
) -> Any:  # fmt: skip
    """Call an async function as a transaction that records its result; see `perform`."""
    database = attempt.database
    async with database.opened_async() as (over, connection):
        await cast("Awaitable[None]", over.begin())
        found = await run_async(over, _beginning(attempt, tables, keyed=keyed))
        if found is not None:
            await cast("Awaitable[None]", over.rollback())
            return found.value
        with database.lent(over, connection):
            value = await function(*args, **kwargs)
        await run_async(over, _ending(attempt, tables, value, keyed=keyed))
        place = attempt.scope.reserve(attempt.payload(value))
        event = await uncancelled(_arrived(place))
        lost = await uncancelled(_commit_async(over, tables, place, event))
    if lost is not None:
        await uncancelled(_resolve_async(attempt, tables, place, event, lost))
    return value


async def _arrived(place: Any) -> Event:
    event: Event = await asyncio.wrap_future(place.event)
    return event


async def _commit_async(over: Link, tables: Tables, place: Any, event: Event) -> Exception | None:
    try:
        await run_async(over, appending(tables, event))
        try:
            await cast("Awaitable[None]", over.commit())
        except Exception as error:  # noqa: BLE001 - whatever it is, it may have happened
            return error
        place.taken = True
    finally:
        with suppress(Exception):
            await run_async(over, leaving(tables))
    return None


async def _resolve_async(attempt: Attempted, tables: Tables, place: Any, event: Event, lost: Exception) -> None:
    for wait_s in waits():
        try:
            async with attempt.database.opened_async() as (over, _):
                await cast("Awaitable[None]", over.begin())
                committed = await run_async(over, _is_taken(tables, event))
                await cast("Awaitable[None]", over.rollback())
                if committed:
                    await cast("Awaitable[None]", over.begin())
                    committed = await run_async(over, author(tables, event)) == event.commit_id
                    await cast("Awaitable[None]", over.rollback())
                await run_async(over, leaving(tables))
        except Exception:  # noqa: BLE001 - the database is away
            await asyncio.sleep(wait_s)
            continue
        place.taken = committed
        if committed:
            return
        raise busy(lost, f"step {event.name!r}", tables.dialect) or lost from lost
    raise attempt.unknown from lost


def _beginning(attempt: Attempted, tables: Tables, *, keyed: bool) -> Steps[Found | None]:
    """Note the transaction that is begun, by a savepoint; return the result that a worker without rights has left."""
    if keyed:
        return attempt.found((yield from opening(tables.dialect, attempt.request_id, None)))
    yield Savepoint.OPEN
    return None


def _ending(attempt: Attempted, tables: Tables, value: Any, *, keyed: bool) -> Steps[None]:
    """See that the transaction is still the one that was begun.

    Raises:
        GuardBusy: another transaction was in the way.
        GuardError: it is not; what the function did is committed, so it is not called again.
    """
    try:
        if keyed:
            yield from closing(tables.dialect, attempt.request_id, attempt.encoded(value))
        else:
            yield Savepoint.KEEP
    except GuardBusy:
        raise
    except Exception as error:
        name = attempt.scope.name
        told = busy(error, f"the end of step {name!r}", tables.dialect)
        if told is not None:
            raise told from error
        if meaning(error, tables.dialect) != "ended":
            raise
        attempt.scope.is_final = True
        message = f"the transaction of step {name!r} is not the one it was begun in: {error}"
        raise GuardError(message, hint="return from the step to commit, raise to roll back") from error


def _is_taken(tables: Tables, event: Event) -> Steps[bool]:
    """Whether an event's place in the log is taken, after all who are at it have ended."""
    try:
        yield from appending(tables, event)
    except LeaseLost:
        return True
    return False
