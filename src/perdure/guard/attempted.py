"""What an attempt of a transactional step knows of itself, wherever its database is."""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode, b64encode
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from perdure.codec.base import ENVELOPE
from perdure.errors import GuardError
from perdure.guard.database import Database
from perdure.guard.request import Stored
from perdure.kernel.scope import StepScope

_RAW: Final = b"="
"""Before a result that the engine's codec does not store as JSON text; no JSON text begins like that."""
_LONGEST_DOUBT_S: Final = 60.0
T = TypeVar("T")


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

    def payload(self, value: Any) -> bytes:
        """Return a result as the log has it."""
        data: bytes = self.scope.operation.run.codec.encode(value, self.returns)
        return data

    def encoded(self, value: Any) -> bytes:
        """Return a result as it is stored beside a key: a text, whatever the engine's codec makes of it."""
        data = self.payload(value)
        return data if data[0] != ENVELOPE else _RAW + b64encode(data)

    def check_wanted(self) -> None:
        """Keep what nobody waits for any more from being committed: it was answered as timed out or cancelled.

        Raises:
            GuardError: nobody does.
        """
        if not self.scope.is_wanted:
            message = f"step {self.scope.name!r} ended too late; its transaction was rolled back"
            raise GuardError(message)

    @property
    def unknown(self) -> GuardError:
        """What to raise where nobody can tell how the transaction ended."""
        message = f"whether the transaction of step {self.scope.name!r} was committed is not known"
        return GuardError(f"{message}: its database is away")


def waits() -> Iterator[float]:
    """Give how long to wait between two looks at a database that is away, until it makes no sense any more."""
    wait_s, until = 0.05, time.monotonic() + _LONGEST_DOUBT_S
    while time.monotonic() < until:
        yield wait_s
        wait_s = min(2 * wait_s, 2.0)


async def uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """Do work to its end, whoever loses patience meanwhile: half-way nobody would know what is committed."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()
