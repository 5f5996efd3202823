"""What a database's types and check constraints refuse, for a store that has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors import StoreError
from perdure.model.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.model.run import RunRow

_WAKEABLE = frozenset({Status.PENDING, Status.WAITING})
_INT64 = range(-(2**63), 2**63)


def check_row(row: RunRow) -> None:
    """Refuse a row that contradicts itself, as a database's check constraints do.

    Raises:
        StoreError: it does.
    """
    check_values(row)
    if not row.id or row.status not in set(Status):
        message = f"no id, or no state {row.status!r}"
        raise StoreError(message)
    if (row.status == Status.RUNNING) != (row.owner is not None):
        message = f"a run in state {row.status} with owner {row.owner!r}"
        raise StoreError(message)
    if row.wake_at is not None and row.status not in _WAKEABLE:
        message = f"a run in state {row.status} with a wake-up time"
        raise StoreError(message)


def check_values(values: Iterable[object]) -> None:
    """Refuse values that no column takes.

    Raises:
        TypeError: no type of a column.
        UnicodeEncodeError: no text.
        OverflowError: more than 64 bits.
    """
    for value in values:
        if value is not None and not isinstance(value, str | int | bytes):
            message = f"{type(value).__name__} is no type of a column"
            raise TypeError(message)
        if isinstance(value, str):
            value.encode()
        elif isinstance(value, int) and value not in _INT64:
            message = f"{value} does not fit into 64 bits"
            raise OverflowError(message)
