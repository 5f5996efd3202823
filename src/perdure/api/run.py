"""`Run`: a handle on one run, wherever it executes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from perdure.api import reading
from perdure.model.duration import Duration, microseconds

if TYPE_CHECKING:
    from perdure.api.reading import Event, RunInfo
    from perdure.model.status import Status
    from perdure.replay.history import History
    from perdure.runtime.connection import Connection

R_co = TypeVar("R_co", covariant=True)


class Owner(Protocol):
    """The engine, as far as a handle needs it."""

    @property
    def connection(self) -> Connection:
        """The open connection."""
        ...

    async def await_result(self, run_id: str) -> Any:
        """Wait for a run's end and return its result."""
        ...

    async def cancel(self, run_id: str, *, reason: str | None = None, actor: str | None = None) -> bool:
        """Ask a run to stop."""
        ...


class Run(Generic[R_co]):
    """A handle on a run: cheap to make, good in any process that reaches the database.

    Attributes:
        id: id of the run.
        is_new: whether the `start` that returned the handle recorded the run; False for a repeat, and from `get`.
    """

    __slots__ = ("_engine", "id", "is_new")

    def __init__(self, engine: Owner, run_id: str, *, is_new: bool = False) -> None:
        self._engine = engine
        self.id: str = run_id
        self.is_new: bool = is_new

    def __repr__(self) -> str:
        return f"<Run {self.id!r}>"

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the run ends and return its result, decoded to the workflow's return annotation.

        Giving up (a timeout, a cancelled task) does not touch the run.

        Raises:
            RunFailed: the body raised; ``__cause__`` is that exception where its class is here.
            RunCancelled: the run was cancelled or terminated (`RunTerminated`).
            RunTimedOut: the run did not end within its own time limit.
            RunParked: the run cannot go on without a person.
            RunNotFound: there is no such run, or its history was purged.
            TimeoutError: ``timeout`` is over; the run goes on.
        """
        if timeout is None:
            return await self._engine.await_result(self.id)  # type: ignore[no-any-return]
        limit = microseconds(timeout, "timeout") / 1_000_000
        try:
            async with asyncio.timeout(limit):
                return await self._engine.await_result(self.id)  # type: ignore[no-any-return]
        except TimeoutError:
            message = f"run {self.id!r} has not ended within {limit:g} seconds; it goes on"
            raise TimeoutError(message) from None

    async def status(self) -> Status:
        """Return where the run stands. Raises `RunNotFound`."""
        return (await self.info()).status

    async def info(self) -> RunInfo:
        """Return what a listing shows of the run. Raises `RunNotFound`."""
        return await reading.run_info(self._engine.connection, self.id)

    async def history(self) -> list[Event]:
        """Return the run's log: every event with its time, worker, epoch, input and output. Raises `RunNotFound`."""
        return await reading.history(self._engine.connection, self.id)

    async def recording(self) -> History:
        """Return the run by itself: all that `perdure.testing.replay` needs; its ``dump()`` is a history file.

        Stored values stand in it without compression or encryption. Raises `RunNotFound`.
        """
        return await reading.recording(self._engine.connection, self.id)

    async def value(self, name: str, default: Any = None) -> Any:
        """Return the value the run last published under ``name``, or ``default``. Raises `RunNotFound`."""
        return await reading.value(self._engine.connection, self.id, name, default)

    async def cancel(self, *, reason: str | None = None, actor: str | None = None) -> bool:
        """Ask the run to stop: its body gets `asyncio.CancelledError` at its next await.

        Returns once the request is recorded: True, or False when the run had ended before.

        Raises:
            RunNotFound: there is no such run.
        """
        return await self._engine.cancel(self.id, reason=reason, actor=actor)
