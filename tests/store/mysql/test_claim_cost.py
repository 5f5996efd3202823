"""What a claim reads, counted by the server: it does not grow with what is not claimed."""

from __future__ import annotations

from collections.abc import Callable

from perdure.model.claim import ClaimRequest
from perdure.model.write import COMMITTED, Write
from perdure.store.base import Store
from perdure.testing.author import Author, claims_for, worker


def reads(store: Store) -> int:
    """Give how many rows and index entries the connection that claims has read so far."""
    with store.inner._opened().lend("work") as link:  # type: ignore[attr-defined]
        return sum(int(value) for _, value in link.query("show session status like 'Handler_read%'", ()).rows)


def claim_cost(store: Store, name: str) -> int:
    request = ClaimRequest(name, ("default",), ("0 order",), 5)
    before = reads(store)
    claimed = store.claim(request, claims_for(name))
    assert claimed is not None
    assert len(claimed.taken) == 5
    return reads(store) - before


def fill(store: Store, prefix: str, count: int) -> None:
    """Make runs of every kind that a claim has to step over: not due, of other queues and workflows, ended, and due."""
    later = store.now() + 3_600_000_000
    writes: list[Write] = []
    for number in range(count):
        one = [Author(f"{prefix}-{number}-{kind}", store.now()) for kind in range(5)]
        writes += [
            one[0].create(wake_at=later), one[1].create(queue="other"), one[2].create(workflow="unknown"),
            one[3].create(priority=number % 3), one[4].create(), one[4].claimed("w"), one[4].completed(),
        ]  # fmt: skip
    for start in range(0, len(writes), 700):
        part = writes[start : start + 700]
        assert store.commit(part) == [COMMITTED] * len(part)


def test_the_runs_of_dead_workers_are_looked_for_by_their_owner(store: Store) -> None:
    """However many workers there are, and whatever the server believes of an index that is null nearly everywhere."""
    fill(store, "many", 1500)
    for number in range(40):
        store.register(worker(f"w{number}", store.now(), 1 if number < 5 else 60_000_000))
    request = ClaimRequest("w10", ("default",), ("0 order",), 5)
    store.claim(request, claims_for("w10"))
    with store.inner._opened().lend("work") as link:  # type: ignore[attr-defined]
        link.query("analyze table run", ())
    work: dict[str, Callable[[], object]] = {
        "claim": lambda: store.claim(request, claims_for("w10")),
        "demand": lambda: store.catalog.demand(("default",), store.now()),
        "sweep": store.sweep,
        "claim, with workers that are gone": lambda: store.claim(request, claims_for("w10")),
        "demand, with workers that are gone": lambda: store.catalog.demand(("default",), store.now()),
    }
    cost: dict[str, int] = {}
    for what, do in work.items():
        before = reads(store)
        do()
        cost[what] = reads(store) - before
    assert max(cost.values()) <= 600, cost


def test_what_is_not_claimed_costs_nothing(store: Store, open_more: Callable[[], Store]) -> None:
    fill(store, "few", 20)
    first = open_more()
    first.register(worker("w1", first.now(), 60_000_000))
    few = claim_cost(first, "w1")
    fill(store, "many", 1500)
    second = open_more()
    second.register(worker("w2", second.now(), 60_000_000))
    many = claim_cost(second, "w2")
    assert many <= few * 1.2 + 10, (few, many)
    idle = reads(second)
    nothing = second.claim(ClaimRequest("w2", ("empty",), ("0 order",), 5), claims_for("w2"))
    assert nothing is not None
    assert not nothing.taken
    assert reads(second) - idle <= 40
