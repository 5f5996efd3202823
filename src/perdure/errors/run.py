"""What became of one run."""

from __future__ import annotations

from perdure.errors.root import PerdureError


class RunError(PerdureError):
    """Something about one run; ``run_id`` names it."""

    code = "run"

    def __init__(
        self,
        run_id: str,
        text: str = "",
        *,
        step: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(text or self._default_text(run_id), run_id=run_id, step=step, hint=hint)

    def _default_text(self, run_id: str) -> str:
        return f"run {run_id!r}: {self.code.replace('_', ' ')}"


class RunFailed(RunError):
    """The run's body raised; ``__cause__`` is that exception where its class is here.

    Attributes:
        type_name: Module and name of the exception's class.
        message: Text of the exception.
        traceback_text: Its traceback as it was printed where it was raised.
    """

    code = "run_failed"

    def __init__(
        self,
        run_id: str,
        *,
        type_name: str = "",
        message: str = "",
        traceback_text: str = "",
        hint: str | None = None,
    ) -> None:
        what = ": ".join(part for part in (type_name, message) if part)
        text = f"run {run_id!r} failed" + (f": {what}" if what else "")
        super().__init__(run_id, text, hint=hint)
        self.type_name = type_name
        self.message = message
        self.traceback_text = traceback_text


class RunCancelled(RunError):
    """The run was cancelled; ``reason`` is what the canceller gave."""

    code = "run_cancelled"

    def __init__(self, run_id: str, *, reason: str = "", hint: str | None = None) -> None:
        super().__init__(run_id, _ended(run_id, "was cancelled", reason), hint=hint)
        self.reason = reason


class RunTimedOut(RunError):
    """The run did not end within its own time limit."""

    code = "run_timed_out"

    def __init__(self, run_id: str, *, timeout_s: float | None = None, hint: str | None = None) -> None:
        after = "" if timeout_s is None else f"after {timeout_s:g} s"
        super().__init__(run_id, _ended(run_id, "timed out", after, " "), hint=hint)
        self.timeout_s = timeout_s


class RunTerminated(RunError):
    """An operator ended the run at once; its clean-up did not run."""

    code = "run_terminated"

    def __init__(self, run_id: str, *, reason: str = "", hint: str | None = None) -> None:
        super().__init__(run_id, _ended(run_id, "was terminated", reason), hint=hint)
        self.reason = reason


class RunParked(RunError):
    """The run cannot go on without a person or new code; it is kept, not lost."""

    code = "run_parked"
    default_hint = "remove the reason, then `perdure retry` it"

    def __init__(self, run_id: str, *, reason: str = "", hint: str | None = None) -> None:
        super().__init__(run_id, _ended(run_id, "is parked", reason), hint=hint)
        self.reason = reason


class RunNotFound(RunError):
    """No run has this id in this store."""

    code = "run_not_found"
    default_hint = "check the id and the database; `perdure list` shows the runs there are"

    def _default_text(self, run_id: str) -> str:
        return f"no run has the id {run_id!r}"


class IdConflict(RunError):
    """The id was used before, for another workflow or another input; nothing was started."""

    code = "id_conflict"
    default_hint = "use a new id, or start it exactly as it was started first"

    def _default_text(self, run_id: str) -> str:
        return f"run {run_id!r} was started before with another workflow or input"


def _ended(run_id: str, verb: str, detail: str, separator: str = ": ") -> str:
    return f"run {run_id!r} {verb}" + (f"{separator}{detail}" if detail else "")
