"""The faulty store fails exactly where and how it is told to, and is otherwise the store it wraps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from perdure.errors import StoreUnavailable
from perdure.model.filter import RunFilter
from perdure.model.write import COMMITTED
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from perdure.testing.author import Author, claims_for, worker
from perdure.testing.conformance import StoreConformance
from perdure.testing.faults import Crash, Fault, FaultyStore

RAISED: dict[Fault, type[BaseException]] = {
    Fault.CRASH_BEFORE: Crash,
    Fault.CRASH_AFTER: Crash,
    Fault.ERROR_BEFORE: StoreUnavailable,
    Fault.ERROR_AFTER: StoreUnavailable,
    Fault.CANCEL: asyncio.CancelledError,
}


def opened(at: int = 0, fault: Fault = Fault.CRASH_BEFORE, **options: bool) -> FaultyStore:
    store = FaultyStore(MemoryStore(), at=at, fault=fault, **options)  # type: ignore[arg-type]
    store.open()
    return store


class TestWithoutAFault(StoreConformance):
    @pytest.fixture
    def make(self) -> Callable[[], Store]:
        return lambda: FaultyStore(MemoryStore())


@pytest.mark.parametrize("fault", RAISED)
def test_a_fault_is_raised_at_its_boundary_and_nowhere_else(fault: Fault) -> None:
    store = opened(at=2, fault=fault)
    author = Author("run-1", store.now())
    assert store.commit([author.create()]) == [COMMITTED]
    with pytest.raises(RAISED[fault]) as caught:
        store.commit([author.claimed()])
    assert getattr(caught.value, "unknown", False) == (fault is Fault.ERROR_AFTER)
    done = fault in (Fault.CRASH_AFTER, Fault.ERROR_AFTER, Fault.CANCEL)
    assert len(store.load("run-1")) == 1 + done
    assert (store.injected, store.trace) == (1, ["commit", "commit", "load"])


def test_done_twice_is_done_twice() -> None:
    store = opened(at=2, fault=Fault.TWICE)
    author = Author("run-1", store.now())
    store.commit([author.create()])
    assert store.commit([author.send()]) == [COMMITTED]
    assert len(store.inbox("run-1")) == 2
    assert store.commit([author.claimed()]) == [COMMITTED]


def test_a_crash_passes_by_those_who_catch_exceptions() -> None:
    assert not issubclass(Crash, Exception)


def test_from_a_boundary_on_every_one_can_fail() -> None:
    store = opened(at=2, fault=Fault.ERROR_BEFORE, repeat=True)
    store.stats()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            store.stats()
    assert store.injected == 3
    store.at = 0
    store.stats()


def test_only_the_named_calls_are_boundaries() -> None:
    store = FaultyStore(MemoryStore(), at=1, only={"claim"})
    store.open()
    store.register(worker("w1", store.now()))
    store.list(RunFilter())
    assert store.boundaries == 0
    with pytest.raises(Crash):
        store.claim(None, claims_for("w1"))  # type: ignore[arg-type]
    assert store.boundaries == 1


def test_a_test_can_act_at_the_moment_of_the_fault() -> None:
    store = opened(at=1, fault=Fault.ERROR_AFTER)
    seen: list[int] = []
    store.on_fault = lambda: seen.append(store.boundaries)
    with pytest.raises(StoreUnavailable):
        store.sweep()
    assert seen == [1]
