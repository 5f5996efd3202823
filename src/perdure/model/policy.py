"""What a step promises: how often it is tried, how long it may take, how it is recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from perdure.errors import InvalidValue
from perdure.model.duration import Duration, microseconds

Mode = Literal["normal", "at_most_once", "transaction"]
Durability = Literal["strict", "ahead", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a failing step is tried, and how long to wait between attempts.

    The attempt count and the time of the next attempt are recorded, so they survive a crash.

    Attributes:
        attempts: attempts in all, the first included.
        initial: wait before the second attempt.
        factor: each further wait is this many times the one before.
        maximum: longest wait.
        jitter: shorten each wait by a random part of up to a half, so that many runs do not retry at once.
        give_up_on: exceptions that are not worth another attempt.
    """

    attempts: int = 5
    initial: Duration = "200ms"
    factor: float = 2.0
    maximum: Duration = "30s"
    jitter: bool = True
    give_up_on: tuple[type[BaseException], ...] = ()

    def __post_init__(self) -> None:
        """Check the values, so that a wrong one shows where it is written.

        Raises:
            InvalidValue: a value is out of range.
        """
        if not isinstance(self.attempts, int) or isinstance(self.attempts, bool) or self.attempts < 1:
            message = f"Retry(attempts=...) must be a whole number of at least 1, not {self.attempts!r}"
            raise InvalidValue(message)
        if not isinstance(self.factor, int | float) or not 1 <= self.factor <= 1_000:
            message = f"Retry(factor=...) must be between 1 and 1000, not {self.factor!r}"
            raise InvalidValue(message)
        microseconds(self.initial, "Retry(initial=...)")
        microseconds(self.maximum, "Retry(maximum=...)")
        if not isinstance(self.give_up_on, tuple):
            object.__setattr__(self, "give_up_on", _as_tuple(self.give_up_on))
        for kind in self.give_up_on:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                message = f"Retry(give_up_on=...) takes exception classes, not {kind!r}"
                raise InvalidValue(message)

    def wait_us(self, failed: int, luck: float) -> int:
        """Return the wait in microseconds after ``failed`` failed attempts; ``luck`` in [0, 1) feeds the jitter."""
        initial = microseconds(self.initial)
        maximum = microseconds(self.maximum)
        exponent = min(failed - 1, 64)
        wait = min(initial * self.factor**exponent, maximum)
        return round(wait * (1 - luck / 2)) if self.jitter else round(wait)


def _as_tuple(value: object) -> tuple[object, ...]:
    return tuple(value) if isinstance(value, list | set | frozenset) else (value,)


ONCE = Retry(attempts=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPolicy:
    """All that a step's decorator says, checked.

    Attributes:
        retry: attempts and waits.
        timeout_us: longest time of one attempt, or None.
        mode: ``normal``: attempted at least once, recorded once. ``at_most_once``: never re-run by itself.
            ``transaction``: its writes to a database and its result are committed together there.
        durability: ``strict``: recorded before the next step begins. ``ahead``: for pure steps, a bounded number of
            results may be unrecorded. ``none``: not recorded at all, run again on replay; must be pure.
        store_input: record the arguments beside the result.
    """

    retry: Retry = ONCE
    timeout_us: int | None = None
    mode: Mode = "normal"
    durability: Durability = "strict"
    store_input: bool = True

    def __post_init__(self) -> None:
        """Check what can be wrong.

        Raises:
            InvalidValue: an unknown word, or a combination that cannot hold.
        """
        if self.mode not in get_args(Mode):
            message = f"mode must be one of {', '.join(get_args(Mode))}, not {self.mode!r}"
            raise InvalidValue(message)
        if self.durability not in get_args(Durability):
            message = f"durability must be one of {', '.join(get_args(Durability))}, not {self.durability!r}"
            raise InvalidValue(message)
        if self.mode != "normal" and self.durability != "strict":
            message = f"mode={self.mode!r} needs durability='strict', not {self.durability!r}"
            raise InvalidValue(message)
        if self.timeout_us == 0:
            message = "timeout must be longer than 0"
            raise InvalidValue(message)
