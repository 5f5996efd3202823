"""Plans of upgrades, and what was done by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from perdure.store.upgrade import UpgradeRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.store.catalog.ground import Ground


class PlanRow(NamedTuple):
    """A plan. The field order is the column order."""

    id: str
    workflow: str
    to_version: int
    label: str
    """What the version went by when the plan was made."""
    selector: str
    """How the runs were chosen, as a JSON object."""
    actor: str
    at: int


class ItemRow(NamedTuple):
    """One run of a plan. The field order is the column order."""

    plan_id: str
    n: int
    run_id: str
    from_version: int
    epoch: int
    events: int
    """Length of the log that was checked."""
    verdict: str
    """As a JSON object."""


class Plans(Protocol):
    """The part of the catalog that is about upgrades. What is recorded there is only ever added to."""

    def add_plan(self, plan: PlanRow, items: Sequence[ItemRow]) -> None:
        """Keep a plan, whole or not at all."""
        ...

    def plan(self, plan_id: str) -> tuple[PlanRow, list[ItemRow]] | None:
        """Return a plan and its runs, in order."""
        ...

    def upgrades_by(self, plan_id: str) -> list[UpgradeRow]:
        """Return what was done by a plan, oldest first."""
        ...

    def upgrades_of(self, run_id: str) -> list[UpgradeRow]:
        """Return every change of a run's version, oldest first."""
        ...


class SqlPlans:
    """`Plans` by named statements."""

    _ground: Ground

    def add_plan(self, plan: PlanRow, items: Sequence[ItemRow]) -> None:
        """Keep a plan."""
        calls = [("add_plan", *plan), *(("add_item", *item) for item in items)]
        self._ground.write(lambda run: run(*calls))

    def plan(self, plan_id: str) -> tuple[PlanRow, list[ItemRow]] | None:
        """Return a plan and its runs."""
        found, items = self._ground.read(lambda run: run(("read_plan", plan_id), ("read_items", plan_id)))
        return (PlanRow._make(found[0]), [ItemRow._make(row) for row in items]) if found else None

    def upgrades_by(self, plan_id: str) -> list[UpgradeRow]:
        """Return what was done by a plan."""
        (rows,) = self._ground.read(lambda run: run(("upgrades_by_plan", plan_id)))
        return [UpgradeRow._make(row) for row in rows]

    def upgrades_of(self, run_id: str) -> list[UpgradeRow]:
        """Return every change of a run's version."""
        (rows,) = self._ground.read(lambda run: run(("upgrades_of_run", run_id)))
        return [UpgradeRow._make(row) for row in rows]


class MemoryPlans:
    """`Plans` in lists."""

    def __init__(self) -> None:
        self._plans: dict[str, tuple[PlanRow, list[ItemRow]]] = {}
        self._upgrades: list[UpgradeRow] = []

    def add_plan(self, plan: PlanRow, items: Sequence[ItemRow]) -> None:
        """Keep a plan."""
        self._plans[plan.id] = plan, list(items)

    def plan(self, plan_id: str) -> tuple[PlanRow, list[ItemRow]] | None:
        """Return a plan and its runs."""
        return self._plans.get(plan_id)

    def upgraded(self, row: UpgradeRow) -> None:
        """Record a change of a run's version."""
        self._upgrades.append(row)

    def upgrades_by(self, plan_id: str) -> list[UpgradeRow]:
        """Return what was done by a plan."""
        return [row for row in self._upgrades if row.plan_id == plan_id]

    def upgrades_of(self, run_id: str) -> list[UpgradeRow]:
        """Return every change of a run's version."""
        return [row for row in self._upgrades if row.run_id == run_id]
