"""What a guard in the application's own database found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.errors.root import PerdureError


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
