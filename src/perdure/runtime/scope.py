"""One attempt of a step, as its function and what surrounds it see it: on whatever thread they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from perdure.errors import SourceChangedOnDisk
from perdure.kernel.scope import StepScope
from perdure.runtime.recorder import Place

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from perdure.kernel.execution import Execution
    from perdure.kernel.kinds.step import StepOperation
    from perdure.model.run import RunRow
    from perdure.runtime.attempt import Attempts
    from perdure.runtime.host import Host
    from perdure.runtime.launcher import Launcher
    from perdure.runtime.recorder import Recorder
    from perdure.runtime.tape import Tape
    from perdure.store.base import Store


class Owner(Protocol):
    """The run whose attempts these are."""

    id: str
    host: Host
    row: RunRow
    execution: Execution
    launcher: Launcher
    recorder: Recorder
    tape: Tape
    gone: bool
    leaving: bool
    sendings: Mapping[str, int]

    def answer(self, operation: StepOperation, payload: bytes | None, error: bytes | None) -> None:
        """Answer a step that is not recorded."""
        ...

    def pump(self) -> None:
        """Deliver what can be delivered and go on."""
        ...

    def pump_soon(self) -> None:
        """Pump from a plain callback."""
        ...

    def drop(self, reason: str) -> None:
        """Lose the run: stop everything for it, record nothing."""
        ...

    def hand_back(self, reason: str, *, fatal: bool = False) -> None:
        """Give the run to whoever claims it next."""
        ...


class Attempt(StepScope):
    """One attempt under way."""

    attempts: Attempts
    beaten_at: int = 0
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    timed_out: bool = False
    """A sync attempt whose time is up: answered already, but its thread still runs."""
    given_up: bool = False
    begun: bool = False
    """Whether the task of an async attempt has had its first turn: before that, a cancel ends it unheard."""
    place: Place | None = None
    """Where its own transaction puts its record. From then on nothing but the transaction decides how it ends."""

    @property
    def is_wanted(self) -> bool:
        """See `StepScope`. May be asked on any thread."""
        return not (self.timed_out or self.given_up or self.attempts.abandoned)

    @property
    def store(self) -> Store:
        """See `StepScope`."""
        return self.attempts.run.host.store

    def reserve(self, payload: bytes) -> Place:
        """See `StepScope`. May be called on any thread."""
        place = Place()
        self.attempts.run.host.loop.call_soon_threadsafe(self.attempts.reserve, self, place, payload)
        return place

    def beat(self, detail: Any) -> None:
        """Record progress. May be called on any thread.

        Raises:
            CodecError: ``detail`` cannot be stored.
        """
        self.attempts.send_beat(self, detail)


def is_fatal(error: BaseException | None) -> bool:
    """Whether an exception says something about the process, not about the step: never recorded as its failure."""
    return error is not None and (
        not isinstance(error, Exception) or isinstance(error, MemoryError | SourceChangedOnDisk)
    )
