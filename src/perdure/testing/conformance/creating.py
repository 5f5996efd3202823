"""Starts: one id, one run."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from perdure.model.event import EMPTY_TAIL, broken_link
from perdure.model.filter import RunFilter
from perdure.model.write import COMMITTED, Conflict, Existing, Failed, Missing, Send
from perdure.testing.author import Author
from perdure.testing.conformance.contract import Contract, accept, commit, row_of, running

if TYPE_CHECKING:
    from perdure.model.write import Outcome
    from perdure.store.base import Store


class CreatingContract(Contract):
    """`Create`."""

    @pytest.mark.parametrize("fresh", [True, False])
    def test_a_taken_id_is_answered_with_its_run(self, store: Store, fresh: bool) -> None:  # noqa: FBT001
        running(store)
        row = row_of(store, "run-1")
        again = Author("run-1", store.now())
        assert commit(store, again.create(fresh=fresh, workflow="other")) == [Existing(row)]
        assert store.get("run-1") == row
        assert len(store.load("run-1")) == 2

    def test_a_purged_id_is_answered_with_what_it_left(self, store: Store) -> None:
        author = running(store)
        accept(store, author.completed(), author.purge())
        left = store.get("run-1")
        again = Author("run-1", store.now())
        outcomes = commit(store, again.create(fresh=False), Author("run-2", store.now()).create())
        assert outcomes == [Existing(left), COMMITTED]  # type: ignore[arg-type]
        assert store.load("run-1") == []

    @pytest.mark.parametrize(
        "run_id", ["a\0b", "\0", "'", '"', "\\", "\U0001f600", "é" * 300, "\x1f", "a b", "%", "\u2028"], ids=range(11)
    )
    def test_any_text_is_an_id(self, store: Store, run_id: str) -> None:
        author, again = Author(run_id, store.now()), Author(run_id, store.now())
        create = author.create(fresh=False)
        accept(store, create, author.claimed())
        row = row_of(store, run_id)
        assert row.id == run_id
        rival = author.stale()
        accept(store, author.step())
        assert commit(store, again.create(fresh=False), rival.step()) == [Existing(row), Conflict(3)]
        assert commit(store, author.send(), author.completed(), author.purge()) == [COMMITTED] * 3
        left = store.get(run_id)
        assert commit(store, again.stale().create(fresh=False)) == [Existing(left)]  # type: ignore[arg-type]

    def test_an_id_that_cannot_be_stored_fails_alone(self, store: Store) -> None:
        other = running(store, "run-2")
        bad = Author("bad", store.now()).create(fresh=False)
        bad = replace(bad, row=bad.row._replace(id="\ud800"))
        lost = Send(other.send().message._replace(run_id="\ud800"))
        outcomes = commit(store, bad, other.step(), lost)
        assert isinstance(outcomes[0], Failed)
        assert outcomes[1] == COMMITTED
        assert isinstance(outcomes[2], Failed | Missing)

    def test_of_two_creates_in_one_batch_the_first_is_the_run(self, store: Store) -> None:
        first, second = Author("run-1", store.now()), Author("run-1", store.now())
        create = first.create(fresh=False, queue="a")
        assert commit(store, create, second.create(fresh=False, queue="b")) == [COMMITTED, Existing(create.row)]

    def test_a_create_sees_what_the_batch_did_to_the_run_before_it(self, store: Store) -> None:
        author, again = Author("run-1", store.now()), Author("run-1", store.now())
        outcomes = commit(store, author.create(), author.claimed(), again.create(), author.step())
        row = row_of(store, "run-1")
        assert row.status == "running"
        assert outcomes[:3] == [COMMITTED, COMMITTED, Existing(row)]

    def test_an_append_behind_a_refused_create_is_refused(self, store: Store) -> None:
        accept(store, Author("run-1", store.now()).create())
        again = Author("run-1", store.now())
        outcomes = commit(store, again.create(), again.step())
        assert isinstance(outcomes[0], Existing)
        assert outcomes[1] == Conflict(1)
        assert len(store.load("run-1")) == 1

    def test_an_append_of_the_owner_behind_a_refused_create_is_committed(self, store: Store) -> None:
        author = running(store, "run-1")
        again = Author("run-1", store.now())
        outcomes = commit(store, author.step(), again.create(), author.step(), author.step())
        assert isinstance(outcomes[1], Existing)
        assert [outcomes[place] for place in (0, 2, 3)] == [COMMITTED] * 3
        assert broken_link("run-1", EMPTY_TAIL, store.load("run-1")) is None

    def test_a_refused_create_leaves_nothing_behind(self, store: Store) -> None:
        accept(store, Author("run-1", store.now()).create(tags=(("team", "a"),)))
        commit(store, Author("run-1", store.now()).create(tags=(("team", "b"),)))
        assert store.list(RunFilter(tags=(("team", "b"),))) == []

    def test_a_create_that_is_there_already_is_committed_again_without_effect(self, store: Store) -> None:
        author = Author("run-1", store.now())
        create = author.create(fresh=False, tags=(("team", "a"),))
        accept(store, create)
        accept(store, author.claimed(), author.step())
        before = store.get("run-1"), store.load("run-1")
        accept(store, create)
        assert (store.get("run-1"), store.load("run-1")) == before

    def test_a_row_that_contradicts_itself_fails_alone(self, store: Store) -> None:
        bad = [{"status": "dancing"}, {"status": "running"}, {"owner": "w1"}, {"status": "parked"}, {"id": ""}]
        batch = []
        for n, wrong in enumerate(bad):
            create = Author(wrong.get("id", f"run-{n}"), store.now()).create()
            batch.append(replace(create, row=create.row._replace(**wrong)))  # type: ignore[arg-type]
        good = Author("good", store.now()).create()
        outcomes = commit(store, *batch[:3], good, *batch[3:])
        assert [isinstance(outcome, Failed) for outcome in outcomes] == [True, True, True, False, True, True]
        assert [row.id for row in store.list(RunFilter())] == ["good"]

    def test_concurrent_creates_of_one_id_make_one_run(self, store: Store) -> None:
        barrier = threading.Barrier(8)
        answers: list[Outcome] = []

        def start(n: int) -> None:
            create = Author("run-1", store.now()).create(fresh=False, queue=f"q{n}")
            barrier.wait()
            answers.extend(commit(store, create))

        threads = [threading.Thread(target=start, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        row = row_of(store, "run-1")
        assert sorted(map(repr, answers)) == sorted(map(repr, [COMMITTED, *[Existing(row)] * 7]))
        assert len(store.load("run-1")) == 1
