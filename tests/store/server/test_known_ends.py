"""A process knows the ends of the logs it claimed: neither the claim nor what follows asks the server for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.model.write import Write
from perdure.store.base import Store
from perdure.store.server.gathering import Gathering
from perdure.testing.author import Author
from perdure.testing.conformance.contract import accept, claim, enlist


@pytest.fixture
def misses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give how many places were looked up, for each group of writes that is applied."""
    found: list[int] = []
    add = Gathering.add

    def counting(self: Gathering, batch: list[Write]) -> None:
        add(self, batch)
        found.append(self.misses)

    monkeypatch.setattr(Gathering, "add", counting)
    return found


def test_nothing_is_looked_up_for_a_run_that_was_claimed_here(
    open_more: Callable[[], Store], misses: list[int]
) -> None:
    client, worker = open_more(), open_more()
    author = Author("run-1", client.now())
    accept(client, author.create())
    enlist(worker, "w1")
    taken = claim(worker, "w1")
    assert [one.row.id for one in taken] == ["run-1"]
    author.follow(taken[0])
    accept(worker, author.step())
    accept(worker, author.step())
    assert misses == [0] * 4


def test_what_was_known_before_a_claim_gives_way_to_what_it_read(
    open_more: Callable[[], Store], misses: list[int]
) -> None:
    first, second = open_more(), open_more()
    author = Author("run-1", first.now())
    enlist(first, "w1", "w2")
    accept(first, author.create(owner="w1"), author.step())
    accept(second, author.step())
    second.heartbeat("w1", 0)
    (taken,) = claim(first, "w2")
    author.follow(taken)
    misses.clear()
    accept(first, author.step())
    assert misses == [0]
