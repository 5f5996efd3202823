"""What a heartbeat asks: of a worker that has nothing to do, only now and then whether it owns anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from perdure.store.base import Store
from perdure.store.server import lease
from perdure.store.server.lease import Beats
from perdure.testing.author import Author
from perdure.testing.conformance.contract import SECOND, accept, claim, enlist
from tests.servers.proxy import Proxy
from tests.store.sending import sending


class Server:
    """Tells what is owned, and notes whether it was asked."""

    def __init__(self) -> None:
        self.owned: list[tuple[str, int, int]] = []
        self.asked: list[bool] = []

    def beat(self, link: Any, worker_id: str, lease_us: int, *, owned: bool) -> Sequence[tuple[Any, ...]] | None:
        self.asked.append(owned)
        return None if worker_id == "dead" else list(self.owned) if owned else []


def beat(beats: Beats, server: Server, worker_id: str = "w1") -> Any:
    anything: Any = server
    return beats.beat(anything, anything, worker_id, SECOND)


def test_a_worker_that_owned_nothing_is_asked_now_and_then() -> None:
    beats, server = Beats(), Server()
    for _ in range(2 * lease._PASSED + 3):
        assert beat(beats, server).alive
    assert server.asked == [True, *[False] * lease._PASSED, True, *[False] * lease._PASSED, True]


def test_after_a_claim_or_a_batch_it_is_asked_at_once() -> None:
    beats, server = Beats(), Server()
    beat(beats, server)
    server.owned = [("run-1", 1, 0)]
    beats.stirs += 1
    assert beat(beats, server).owned == {"run-1": (1, 0)}


def test_a_worker_that_owns_something_is_asked_each_time() -> None:
    beats, server = Beats(), Server()
    server.owned = [("run-1", 1, 0)]
    for _ in range(4):
        assert beat(beats, server).owned == {"run-1": (1, 0)}
    assert server.asked == [True] * 4


def test_who_has_nothing_to_do_is_more_patient_the_more_there_are() -> None:
    beats, server = Beats(), Server()
    beats.fleet = 15
    assert beats.patience == 1
    beat(beats, server)
    assert beats.patience == 1.5
    for fleet, patience in ((1, 1), (10, 1), (20, 2), (1000, 2)):
        beats.fleet = fleet
        assert beats.patience == patience
    beats.stirs += 1
    assert beats.patience == 1
    server.owned = [("run-1", 1, 0)]
    beat(beats, server)
    assert beats.patience == 1


def test_each_worker_is_known_by_itself() -> None:
    beats, server = Beats(), Server()
    beat(beats, server, "w1")
    beat(beats, server, "w2")
    assert not beat(beats, server, "dead").alive
    beat(beats, server, "w1")
    assert server.asked == [True, True, True, False]


def test_what_was_claimed_since_the_last_heartbeat_is_told_by_the_next(open_more: Callable[[], Store]) -> None:
    store = open_more()
    enlist(store, "w1")
    for _ in range(3):
        assert store.heartbeat("w1", 60 * SECOND).owned == {}
    accept(store, Author("run-1", store.now()).create())
    assert len(claim(store, "w1")) == 1
    assert store.heartbeat("w1", 60 * SECOND).owned == {"run-1": (1, 0)}
    assert not store.heartbeat("w2", 60 * SECOND).alive


@pytest.mark.parametrize("purpose", ["claim", "create"])
def test_what_was_taken_by_a_commit_whose_answer_is_lost_is_told_by_the_next(
    database: Any, proxy: Proxy, purpose: str
) -> None:
    with sending(database.server.url(database.name, port=proxy.port), 5.0) as given:
        store: Any = given
        enlist(store, "w1")
        for _ in range(3):
            assert store.heartbeat("w1", 60 * SECOND).owned == {}
        author = Author("run-1", store.now())
        if purpose == "claim":
            accept(store, author.create())
            proxy.on_commit("after", touching="event")
            assert len(claim(store, "w1")) == 1
        else:
            proxy.on_commit("after", touching="event")
            accept(store, author.create(), author.claimed("w1"))
        assert store.heartbeat("w1", 60 * SECOND).owned == {"run-1": (1, 0)}
