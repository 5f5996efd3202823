"""The rows of an upgrade, besides the event in the run's log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.model.write import Conflict, Outdated

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.model.run import RunRow
    from perdure.model.write import Change, Upgrade


class UpgradeRow(NamedTuple):
    """A row of ``run_upgrade``: one change of a run's version. The field order is the column order."""

    run_id: str
    new_epoch: int
    from_version: int
    to_version: int
    plan_id: str | None
    forced: int
    actor: str
    reason: str
    at: int


def upgrade_row(write: Upgrade, change: Change) -> UpgradeRow:
    """Return the record of an upgrade."""
    return UpgradeRow(
        write.append.run_id, change.epoch, write.from_version, write.to_version, write.plan_id, int(write.forced),
        write.actor, write.reason, change.at,
    )  # fmt: skip


def refusal(write: Upgrade, row: RunRow, tail: int, count: Callable[[], int]) -> Conflict | Outdated | None:
    """Return why a run is not to be bound so; None if it is.

    Args:
        write: what is asked for.
        row: the run.
        tail: where its log ends.
        count: returns the count of changes of versions.
    """
    if row.version_id != write.from_version:
        return Conflict(tail)
    now = None if write.version_count is None else count()
    return None if now == write.version_count or now is None else Outdated(now)


def rebinding(write: Upgrade) -> list[tuple[Any, ...]]:
    """Return what records an upgrade and binds the run anew, once its event is in the log and its epoch raised.

    The database refuses the second without the first.
    """
    assert write.append.change is not None  # noqa: S101 - an upgrade always changes the run
    return [
        ("add_upgrade", *upgrade_row(write, write.append.change)),
        ("rebind_run", write.append.run_id, write.to_version, write.label),
    ]
