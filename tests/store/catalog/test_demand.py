"""What a look for needed code costs where nothing is needed: idle workers take it all the time."""

from __future__ import annotations

from typing import Any

from perdure.store.catalog.demand import Demand, demand


def test_where_no_run_waits_one_statement_tells() -> None:
    trips: list[list[str]] = []

    def run(*calls: tuple[Any, ...]) -> list[list[tuple[Any, ...]]]:
        trips.append([name for name, *_ in calls])
        return [[("waits", None, None, queue) for queue in queues] for _, queues, _ in calls]

    assert demand(run, ("default", "mail"), 0) == Demand({}, {}, frozenset(), {})
    assert trips == [["demand"]]
