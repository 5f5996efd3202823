"""Every error a user can see, as one tree.

    PerdureError                  error
    ├── UsageError                usage              the caller's mistake; nothing was stored
    │   └── InvalidValue          invalid_value      also a ValueError
    ├── RunError                  run                about one run
    │   ├── RunFailed             run_failed         its body raised
    │   ├── RunCancelled          run_cancelled
    │   ├── RunTimedOut           run_timed_out
    │   ├── RunTerminated         run_terminated
    │   ├── RunParked             run_parked         it waits for a person or for code
    │   ├── RunNotFound           run_not_found
    │   └── IdConflict            id_conflict        the id belongs to another start
    ├── StepFailed                step_failed        the step's own exception class is not here
    │   ├── StepTimedOut          step_timed_out
    │   └── StepInterrupted       step_interrupted   nobody knows whether it had its effect
    ├── StoreError                store
    │   ├── StoreUnavailable      store_unavailable  try again later
    │   ├── StoreCorrupt          store_corrupt
    │   ├── SchemaTooNew          schema_too_new
    │   ├── BlobsMissing          blobs_missing      internal: files of a release are still to be stored
    │   └── StoreConflict         store_conflict     internal: an append lost its race
    ├── GuardError                guard              a write of the application that is guarded
    │   ├── GuardConflict         guard_conflict     the request id was used for something else
    │   ├── GuardBusy             guard_busy         another transaction is at it; try again
    │   └── StateMismatch         state_mismatch     the row is not in the expected state
    ├── LeaseLost                 lease_lost         another worker owns the run now
    ├── CodecError                codec              a value cannot be stored or read exactly
    ├── Diverged                  diverged           replay asked for something else
    └── VersionError              version            no code for the version of a run
        ├── NoSource              no_source          a workflow's code has no source to keep
        ├── NotPublished          not_published      this worker may not publish, and its code is unknown
        ├── SnapshotCorrupt       snapshot_corrupt   stored code is not what was registered
        ├── SnapshotTooLarge      snapshot_too_large first-party files are too large to be kept
        ├── UnbumpedChange        unbumped_change    other code under a number that is taken
        ├── UnknownVersion        unknown_version    no such version is published
        ├── VersionClosed         version_closed     the version takes no new runs
        └── VersionPurged         version_purged     the version's code is gone

Invariants:

INV-1  ``code`` is a stable string, unique per class. HTTP problem documents, metrics labels
       and exit codes are derived from it, never from the class name or the text.
INV-2  ``str(error)`` says what happened, to which run and step, and what to do next.
INV-3  All state is in ``args`` and ``__dict__``, so that an error can be pickled, copied and
       stored without calling its constructor.

This module imports nothing of the package, so every layer can raise from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

__all__ = [
    "BlobsMissing",
    "CodecError",
    "Diverged",
    "GuardBusy",
    "GuardConflict",
    "GuardError",
    "IdConflict",
    "InvalidValue",
    "LeaseLost",
    "NoSource",
    "NotPublished",
    "PerdureError",
    "RunCancelled",
    "RunError",
    "RunFailed",
    "RunNotFound",
    "RunParked",
    "RunTerminated",
    "RunTimedOut",
    "SchemaTooNew",
    "SnapshotCorrupt",
    "SnapshotTooLarge",
    "StateMismatch",
    "StepFailed",
    "StepInterrupted",
    "StepTimedOut",
    "StoreConflict",
    "StoreCorrupt",
    "StoreError",
    "StoreUnavailable",
    "UnbumpedChange",
    "UnknownVersion",
    "UsageError",
    "VersionClosed",
    "VersionError",
    "VersionPurged",
]


class PerdureError(Exception):
    """Root of every error this library raises.

    Args:
        text: What happened, one sentence without a final full stop.
        run_id: The run it happened to; named in the message unless the text names it already.
        step: The step it happened to; likewise.
        hint: What to do next; the class may have a default.
    """

    code: ClassVar[str] = "error"
    default_hint: ClassVar[str] = ""

    run_id: str | None
    step: str | None
    hint: str

    def __init__(
        self,
        text: str = "",
        *,
        run_id: str | None = None,
        step: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(text)
        self.run_id = run_id
        self.step = step
        self.hint = self.default_hint if hint is None else hint

    @property
    def text(self) -> str:
        """What happened, without the run, the step and the hint."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        # getattr: an instance rebuilt from stored data may lack attributes added later.
        text = self.text or self.code.replace("_", " ")
        where = [
            f"{noun} {name!r}"
            for noun, name in (
                ("run", getattr(self, "run_id", None)),
                ("step", getattr(self, "step", None)),
            )
            if name and repr(name) not in text
        ]
        if where:
            text = f"{text} ({', '.join(where)})"
        hint = getattr(self, "hint", "")
        return f"{text}; {hint}" if hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with ``args``, which keyword-only signatures refuse.
        return _rebuild, (type(self), self.args), self.__dict__


def _rebuild(cls: type[PerdureError], args: tuple[Any, ...]) -> PerdureError:
    error = cls.__new__(cls, *args)
    error.args = args
    return error


class UsageError(PerdureError):
    """The caller asked for something that cannot be; nothing was stored."""

    code = "usage"


class InvalidValue(UsageError, ValueError):
    """A setting or argument has a value that cannot be used."""

    code = "invalid_value"


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


class StoreError(PerdureError):
    """The database refused, failed, or holds something unexpected."""

    code = "store"


class StoreUnavailable(StoreError):
    """The database cannot be reached now; the same call may succeed later.

    Attributes:
        unknown: True when a write may or may not have been committed, and reading our own ids did not tell.
    """

    code = "store_unavailable"
    default_hint = "check that the database runs and can be reached; it is safe to try again"

    def __init__(
        self,
        text: str = "",
        *,
        unknown: bool = False,
        run_id: str | None = None,
        step: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(text, run_id=run_id, step=step, hint=hint)
        self.unknown = unknown


class StoreCorrupt(StoreError):
    """Stored data breaks an invariant; nothing was guessed from it."""

    code = "store_corrupt"
    default_hint = "run `perdure verify` for the full list"


class SchemaTooNew(StoreError):
    """The database was migrated by a newer release than this one."""

    code = "schema_too_new"
    default_hint = "upgrade perdure in this environment"


class BlobsMissing(StoreError):
    """Internal: a release is registered before all of its files are stored.

    Args:
        sha256s: what is missing, by the SHA-256 of its bytes.
    """

    code = "blobs_missing"

    sha256s: tuple[str, ...]

    def __init__(self, sha256s: Iterable[str]) -> None:
        self.sha256s = tuple(sha256s)
        super().__init__(f"{len(self.sha256s)} files of the release are not stored")


class StoreConflict(StoreError):
    """Internal: an append found its place in the log taken. Users see `LeaseLost` instead."""

    code = "store_conflict"


class GuardError(PerdureError):
    """A guard in the application's database could not do its work; the transaction must not be committed."""

    code = "guard"


class GuardConflict(GuardError):
    """The request id was used before with another body; nothing was done, and its answer is not this request's."""

    code = "guard_conflict"
    default_hint = "give each request an id of its own, and repeat it exactly as it was"


class GuardBusy(GuardError):
    """Another transaction is at the same request or row, and the wait for it was too long, or a deadlock."""

    code = "guard_busy"
    default_hint = "roll back and do the whole transaction again"


class StateMismatch(GuardError):
    """A row is not in the state in which it can be changed; nothing was written.

    Attributes:
        table: The table.
        where: What finds the row.
        expected: The state it should have been in.
        found: The state it is in; None where there is no row.
        is_after: True when it is in the state that the change leads to: it was done before.
    """

    code = "state_mismatch"
    default_hint = "look what happened to the row; doing it again needs a decision"

    def __init__(
        self,
        table: str,
        where: Mapping[str, Any],
        *,
        expected: Mapping[str, Any],
        found: Mapping[str, Any] | None,
        is_after: bool = False,
        run_id: str | None = None,
        step: str | None = None,
        hint: str | None = None,
    ) -> None:
        state = "is not there" if found is None else f"has {dict(found)!r}"
        text = f"row {dict(where)!r} of table {table!r} {state}, not {dict(expected)!r}"
        super().__init__(text, run_id=run_id, step=step, hint=hint)
        self.table = table
        self.where: dict[str, Any] = dict(where)
        self.expected: dict[str, Any] = dict(expected)
        self.found: dict[str, Any] | None = None if found is None else dict(found)
        self.is_after = is_after


class LeaseLost(PerdureError):
    """Another worker owns the run now; nothing more of it may be done here."""

    code = "lease_lost"


class CodecError(PerdureError):
    """A value cannot be stored exactly, or stored bytes cannot be read here.

    Attributes:
        path: Where in the value, from ``$``, for example ``$.opts['lock']``.
        type_name: Module and name of the type at that place.
        reason: Why, where there is more to say than that the type is unknown.
    """

    code = "codec"

    def __init__(
        self,
        text: str = "",
        *,
        path: str = "$",
        type_name: str = "",
        reason: str = "",
        run_id: str | None = None,
        step: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(text, run_id=run_id, step=step, hint=hint)
        self.path = path
        self.type_name = type_name
        self.reason = reason


class Diverged(PerdureError):
    """Replay asked for another operation than the one in the log; no effect was started.

    Attributes:
        expected: The recorded operation, as text.
        found: The operation the code asked for, as text.
    """

    code = "diverged"
    default_hint = "run it on the code it began with, or upgrade it explicitly"

    def __init__(
        self,
        text: str = "",
        *,
        expected: str = "",
        found: str = "",
        run_id: str | None = None,
        step: str | None = None,
        hint: str | None = None,
    ) -> None:
        if not text:
            text = f"replay diverged: recorded {expected}, the code asked for {found}"
        super().__init__(text, run_id=run_id, step=step, hint=hint)
        self.expected = expected
        self.found = found


class VersionError(PerdureError):
    """No code here for the version a run is bound to, or versions contradict each other."""

    code = "version"


# The texts of those below are whole sentences that say what to do, so they have no hint.


class NoSource(VersionError):
    """A module that belongs to a workflow has no source file that can be read, so it cannot be bound to a version."""

    code = "no_source"


class NotPublished(VersionError):
    """The worker's code is unknown to the database, and only published code may run."""

    code = "not_published"


class SnapshotCorrupt(VersionError):
    """Stored source is not what was registered; nothing of it was run, nor left on disk."""

    code = "snapshot_corrupt"


class SnapshotTooLarge(VersionError):
    """The first-party files are too large to be stored with a version."""

    code = "snapshot_too_large"


class UnbumpedChange(VersionError):
    """The semantic version belongs to other content, and the policy refuses to label this content apart."""

    code = "unbumped_change"


class UnknownVersion(VersionError):
    """No published version of the workflow is meant by what was asked for."""

    code = "unknown_version"


class VersionClosed(VersionError):
    """The version takes no new runs."""

    code = "version_closed"


class VersionPurged(VersionError):
    """The code of the version is no longer stored."""

    code = "version_purged"
