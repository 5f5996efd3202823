"""One attempt of a transactional step in the application's own database.

    begin; the step's key is inserted, or its stored result found; the function; the result is stored; commit

The key is the lock: of two workers that execute one step, one of which has lost the run and does not know it yet, the
second waits for the first and finds its result. Nothing here depends on a clock.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from perdure.codec.base import ENVELOPE
from perdure.errors import GuardError, UsageError
from perdure.guard.database import Database
from perdure.guard.link import run, run_async
from perdure.guard.request import Stored, abandoning, closing, opening
from perdure.guard.statement import SQLITE, Query, Steps
from perdure.guard.table import create_table
from perdure.kernel.scope import CURRENT, StepScope

if TYPE_CHECKING:
    from perdure.kernel.definition import StepDefinition

_RAW: Final = b"="
"""Before a result that the engine's codec does not store as JSON text; no JSON text begins like that."""
_LONGEST_DOUBT_S: Final = 60.0


class Found(NamedTuple):
    """The result that was stored for a step."""

    value: Any


class Attempted(NamedTuple):
    """One attempt: the step's key in the table, and what its result is decoded as."""

    database: Database[Any]
    scope: StepScope
    returns: Any

    @property
    def request_id(self) -> str:
        """Apart from requests that the function guards with its own key."""
        return f"step/{self.scope.key}"

    def found(self, stored: Stored | None) -> Found | None:
        """Return the stored result, if there is one."""
        if stored is None:
            return None
        data = stored.answer
        if data is None:
            message = f"step {self.scope.name!r} was begun and committed without a result"
            raise GuardError(message, hint="it was left by a commit inside it; look what was done, and delete its row")
        codec = self.scope.operation.run.codec
        return Found(codec.decode(b64decode(data[1:]) if data[:1] == _RAW else data, self.returns))

    def encoded(self, value: Any) -> bytes:
        """Return a result as it is stored: a text, whatever the engine's codec makes of it."""
        data: bytes = self.scope.operation.run.codec.encode(value, self.returns)
        return data if data[0] != ENVELOPE else _RAW + b64encode(data)

    def check_wanted(self) -> None:
        """Keep what nobody waits for any more from being committed: it was answered as timed out or cancelled.

        Raises:
            GuardError: nobody does.
        """
        if not self.scope.is_wanted:
            message = f"step {self.scope.name!r} ended too late; its transaction was rolled back"
            raise GuardError(message)

    def apart(self, dialect: str) -> Steps[None]:
        """See that it is not the engine's own file, where user code must not hold the lock of writers.

        Raises:
            UsageError: it is.
        """
        own = self.scope.engine_file
        if dialect != SQLITE or own is None:
            return
        for _, _, file in (yield Query("pragma database_list")).rows:
            if file and Path(file).exists() and Path(own).samefile(file):
                message = f"step {self.scope.name!r} would be a transaction in the engine's own SQLite file"
                raise UsageError(message, hint="keep the application's tables in a file of their own")


def perform(attempt: Attempted, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a blocking function as a transaction, or return what it returned before."""
    database = attempt.database
    _make_ready(attempt)
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


def _make_ready(attempt: Attempted) -> None:
    """Once in the life of a process, with a connection of its own: look where it is, and make the table of requests."""
    database = attempt.database
    if attempt.scope.engine_file not in database.apart_from:
        with database.opened() as (over, connection):
            run(over, attempt.apart(over.dialect))
            over.rollback()
            create_table(connection)
        database.apart_from.add(attempt.scope.engine_file)


def _resolve(attempt: Attempted, lost: Exception) -> Any:
    """See, through a new connection, what became of a commit whose answer was lost.

    Its transaction may still be under way in the server; the insert of the same key waits for its end.
    """
    for wait_s in _waits():
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
    raise GuardError(_unknown(attempt)) from lost


async def perform_async(
    attempt: Attempted, function: Callable[..., Coroutine[Any, Any, Any]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call an async function as a transaction, or return what it returned before."""
    database = attempt.database
    await _make_ready_async(attempt)
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


async def _make_ready_async(attempt: Attempted) -> None:
    database = attempt.database
    if attempt.scope.engine_file not in database.apart_from:
        async with database.opened_async() as (over, connection):
            await run_async(over, attempt.apart(over.dialect))
            await cast("Awaitable[None]", over.rollback())
            await create_table.aio(connection)
        database.apart_from.add(attempt.scope.engine_file)


async def _resolve_async(attempt: Attempted, lost: Exception) -> Any:
    for wait_s in _waits():
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
    raise GuardError(_unknown(attempt)) from lost


def _waits() -> Iterator[float]:
    wait_s, until = 0.05, time.monotonic() + _LONGEST_DOUBT_S
    while time.monotonic() < until:
        yield wait_s
        wait_s = min(2 * wait_s, 2.0)


def _unknown(attempt: Attempted) -> str:
    return f"whether the transaction of step {attempt.scope.name!r} was committed is not known: its database is away"


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
