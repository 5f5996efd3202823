"""Fixtures and questions that every part of the contract uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure.model.claim import ClaimRequest
from perdure.model.code import code_of
from perdure.model.run import RunRow
from perdure.model.write import COMMITTED
from perdure.testing.author import Author, claims_for, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perdure.model.claim import Claimed
    from perdure.model.write import Outcome, Write
    from perdure.store.base import Store

SECOND = 1_000_000


class Contract:
    """Base of all parts."""

    @pytest.fixture
    def make(self) -> Callable[[], Store]:
        """Return a function that returns a new handle on the test's database, not yet opened. Override it."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, make: Callable[[], Store]) -> Iterator[Store]:
        """Return an open store, empty at first."""
        store = make()
        store.open()
        yield store
        store.close()

    @pytest.fixture
    def second(self, store: Store, make: Callable[[], Store]) -> Iterator[Store]:
        """Return a second handle on the same database, as another process would have it."""
        if not store.capabilities.shared:
            pytest.skip(f"{store.capabilities.name} is not shared")
        second = make()
        second.open()
        yield second
        second.close()

    @pytest.fixture
    def author(self, store: Store) -> Author:
        """Return the writer of a run that is not yet created."""
        return Author("run-1", store.now())


def commit(store: Store, *writes: Write) -> list[Outcome]:
    """Commit one batch."""
    outcomes = store.commit(writes)
    assert outcomes is not None
    assert len(outcomes) == len(writes)
    return outcomes


def accept(store: Store, *writes: Write) -> None:
    """Commit one batch, all of which must be accepted."""
    assert commit(store, *writes) == [COMMITTED] * len(writes)


def row_of(store: Store, run_id: str) -> RunRow:
    """Return a run that must be there."""
    row = store.get(run_id)
    assert isinstance(row, RunRow)
    return row


def running(store: Store, run_id: str = "run-1", owner: str = "w1") -> Author:
    """Return the author of a run that is created and owned."""
    author = Author(run_id, store.now())
    accept(store, author.create(), author.claimed(owner))
    return author


def claim(
    store: Store,
    worker_id: str = "w1",
    *,
    queues: tuple[str, ...] = ("default",),
    workflows: tuple[str, ...] = ("order",),
    limit: int = 10,
    take_over: bool = True,
    only: str | None = None,
    shares: tuple[int, ...] = (),
    codes: tuple[str, ...] | None = None,
    binding: tuple[int, str] | None = None,
) -> list[Claimed]:
    """Claim as a worker does: runs of these workflows that are bound to no version, or what needs these codes."""
    wanted = tuple(code_of(name) for name in workflows) if codes is None else codes
    request = ClaimRequest(worker_id, queues, wanted, limit, take_over, only, shares)
    claims = store.claim(request, claims_for(worker_id, binding=binding))
    assert claims is not None
    return claims.taken


def enlist(store: Store, *worker_ids: str, lease_us: int = 60 * SECOND) -> None:
    """Register workers that are alive."""
    for worker_id in worker_ids:
        store.register(worker(worker_id, store.now(), lease_us))
