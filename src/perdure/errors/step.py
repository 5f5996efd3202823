"""How a step failed, where its own exception cannot be raised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.errors.root import PerdureError


class StepFailed(PerdureError):
    """A step raised an exception whose class is not known in this process.

    Attributes:
        type_name: Module and name of the original class.
        message: Text of the original exception.
        details: Attributes of the original exception that could be stored.
        traceback_text: Its traceback as it was printed where it was raised.
    """

    code = "step_failed"

    def __init__(
        self,
        message: str = "",
        *,
        type_name: str = "",
        details: Mapping[str, Any] | None = None,
        traceback_text: str = "",
        run_id: str | None = None,
        step: str | None = None,
        hint: str | None = None,
    ) -> None:
        text = ": ".join(part for part in (type_name, message) if part)
        super().__init__(text, run_id=run_id, step=step, hint=hint)
        self.type_name = type_name
        self.message = message
        self.details: dict[str, Any] = dict(details or {})
        self.traceback_text = traceback_text


class StepTimedOut(StepFailed):
    """An attempt of a step took longer than its time limit."""

    code = "step_timed_out"

    def __init__(
        self,
        step: str,
        *,
        timeout_s: float | None = None,
        run_id: str | None = None,
        hint: str | None = None,
    ) -> None:
        after = "" if timeout_s is None else f" after {timeout_s:g} s"
        super().__init__(f"step {step!r} timed out{after}", run_id=run_id, step=step, hint=hint)
        self.timeout_s = timeout_s


class StepInterrupted(StepFailed):
    """An at-most-once step was cut off; whether it had its effect is not known."""

    code = "step_interrupted"
    default_hint = "find out whether it took effect; it is never run again by itself"

    def __init__(self, step: str, *, run_id: str | None = None, hint: str | None = None) -> None:
        super().__init__(f"step {step!r} was interrupted", run_id=run_id, step=step, hint=hint)
