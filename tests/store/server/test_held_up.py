"""A claim whose transaction is held up: it is dated when it was made, and no lease is shorter or longer for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perdure.model.claim import Claimed, ClaimRequest
from perdure.model.write import Conflict
from perdure.store.base import Store
from perdure.store.server.claim import Claiming
from perdure.testing.author import Author, claims_for
from perdure.testing.conformance.contract import SECOND, accept, claim, commit, enlist
from perdure.testing.conformance.filling import change
from tests.servers.fixtures import Database
from tests.servers.postgres import Postgres


def claim_held_up(store: Store, meanwhile: Callable[[], object]) -> list[Claimed]:
    """Claim as w1 does, and have something happen once the transaction has locked the run."""
    decide, happened = claims_for("w1"), list[object]()

    def held_up(*given: Any) -> Claimed:
        if not happened:
            happened.append(meanwhile())
        return decide(*given)

    claims = store.claim(ClaimRequest("w1", ("default",), ("0 order",), 10), held_up)
    assert claims is not None
    assert len(happened) == 1
    return claims.taken


def expiry(store: Store, worker_id: str) -> int:
    (found,) = [each.expires_at for each in store.stats().workers if each.id == worker_id]
    return found


def test_it_counts_in_a_rate_from_when_it_was_made(
    database: Database, open_more: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was held up between its beginning and its choice."""
    store = open_more()
    enlist(store, "w1")
    accept(store, change(rate_limit=1, rate_us=3600 * SECOND))
    accept(store, Author("run-1", store.now()).create())
    pause = "select pg_sleep(0.05)" if isinstance(database.server, Postgres) else "select sleep(0.05)"
    choose = Claiming._choose
    later: list[int] = []

    def choosing(self: Any, link: Any, entered: Any) -> Any:
        database.execute(pause)
        later.append(entered.now + 50_000)
        return choose(self, link, entered)

    monkeypatch.setattr(Claiming, "_choose", choosing)
    (one,) = claim(store, "w1")
    assert one.append.events[0].at >= later[0]


def test_it_keeps_no_heartbeat_waiting_and_is_under_the_lease_that_it_gave(open_more: Callable[[], Store]) -> None:
    """The lease the claim began under is over by its end. What counts is the one that the heartbeat gave meanwhile."""
    store, other, third = open_more(), open_more(), open_more()
    enlist(store, "w1", lease_us=1)
    accept(store, Author("run-1", store.now()).create())

    def beat() -> None:
        assert other.heartbeat("w1", 60 * SECOND).alive
        assert third.sweep() == []

    (one,) = claim_held_up(store, beat)
    assert expiry(third, "w1") > one.append.events[0].at + 30 * SECOND
    assert third.sweep() == []
    enlist(third, "w2")
    assert claim(third, "w2") == []
    assert third.heartbeat("w1", 60 * SECOND).owned == {"run-1": (1, 0)}


def test_a_lease_that_is_over_by_its_end_gives_the_run_to_the_next_one(open_more: Callable[[], Store]) -> None:
    """The worker is declared dead, and forgotten because it owns nothing, while its claim is under way."""
    store, other = open_more(), open_more()
    author = Author("run-1", store.now())
    enlist(store, "w1", lease_us=1)
    accept(store, author.create())
    (one,) = claim_held_up(store, lambda: other.sweep() == ["w1"] or pytest.fail("it was not declared dead"))
    author.follow(one)
    assert not store.heartbeat("w1", 60 * SECOND).alive
    enlist(other, "w2")
    open_more().sweep()  # by whoever looks next
    (taken,) = claim(other, "w2")
    assert (taken.row.id, taken.row.owner, taken.row.epoch) == ("run-1", "w1", 1)
    assert [type(outcome) for outcome in commit(store, author.step())] == [Conflict]
    log = other.load("run-1")
    assert [event.type for event in log] == ["run_started", "run_claimed", "run_claimed"]
    assert [event.at for event in log] == sorted(event.at for event in log)
    assert other.owned("w2") == {"run-1": (2, 0)}
