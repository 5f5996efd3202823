"""Appends: the log is the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from perdure.model.event import EMPTY_TAIL, broken_link
from perdure.model.status import EventType
from perdure.model.write import COMMITTED, Append, Conflict, Failed
from perdure.testing.author import Author
from perdure.testing.conformance.contract import SECOND, Contract, accept, commit, row_of, running

if TYPE_CHECKING:
    from perdure.model.write import Write
    from perdure.store.base import Store

TEXTS = [
    "",
    "plain",
    "nul \0 inside",
    "\U0001f600 emoji",
    "\u202e bidi",
    "\x1f separator",
    "'; drop table run; --",
    "é" * 999,
]
BLOBS: list[bytes | None] = [b"", b"\0", b"\xff\xfe", b"x" * 100_000, None]


class WritingContract(Contract):
    """S1 to S4."""

    def test_a_commit_is_there_when_it_returns(self, store: Store, author: Author) -> None:
        create, step = author.create(), author.step()
        accept(store, create, step)
        assert store.load("run-1") == [*create.events, *step.events]
        assert store.get("run-1") == create.row

    def test_an_empty_batch_is_committed(self, store: Store) -> None:
        assert store.commit([]) == []

    def test_a_batch_of_any_size_is_one_commit(self, store: Store) -> None:
        authors = [Author(f"run-{n}", store.now()) for n in range(700)]
        accept(store, *(author.create() for author in authors))
        accept(store, *(author.step(events=1 + n % 3) for n, author in enumerate(authors)))
        assert [len(store.load(f"run-{n}")) for n in range(6)] == [2, 3, 4, 2, 3, 4]

    def test_later_writes_of_a_run_see_the_earlier_ones_of_the_batch(self, store: Store, author: Author) -> None:
        accept(store, author.create(), author.claimed(), author.step(), author.completed())
        assert row_of(store, "run-1").status == "completed"
        assert [event.seq for event in store.load("run-1")] == [1, 2, 3, 4]

    def test_the_log_of_a_run_is_one_chain(self, store: Store) -> None:
        author = running(store)
        accept(store, author.step(events=5), author.step())
        assert broken_link("run-1", EMPTY_TAIL, store.load("run-1")) is None

    @pytest.mark.parametrize("text", TEXTS)
    def test_texts_come_back_as_they_were_given(self, store: Store, author: Author, text: str) -> None:
        create = author.create(version=text)
        step = author.step(op=text)
        accept(store, create, step)
        assert row_of(store, "run-1").workflow_version == text
        assert store.load("run-1")[1] == step.events[0]

    @pytest.mark.parametrize("blob", BLOBS, ids=range(len(BLOBS)))
    def test_bytes_come_back_as_they_were_given(self, store: Store, author: Author, blob: bytes) -> None:
        create, step = author.create(), author.step(blob)
        accept(store, create, step)
        assert store.load("run-1") == [*create.events, *step.events]

    @pytest.mark.parametrize("number", [-(2**63), -1, 0, 2**63 - 1])
    def test_numbers_of_64_bits_come_back_as_they_were_given(self, store: Store, author: Author, number: int) -> None:
        accept(store, author.create(input_digest=number))
        assert row_of(store, "run-1").input_digest == number

    def test_a_taken_place_refuses_the_append(self, store: Store) -> None:
        author = running(store)
        rival = author.stale()
        kept = author.step(b"1")
        accept(store, kept)
        assert commit(store, rival.step(b"2")) == [Conflict(3)]
        assert store.load("run-1", after=2) == list(kept.events)

    def test_a_taken_place_refuses_all_events_of_the_append(self, store: Store) -> None:
        author = running(store)
        rival = author.stale()
        accept(store, author.step())
        assert commit(store, rival.step(events=3)) == [Conflict(3)]
        assert len(store.load("run-1")) == 3

    def test_an_append_that_skips_a_place_is_refused(self, store: Store) -> None:
        author = running(store)
        author.step()
        ahead = author.step()
        assert commit(store, ahead) == [Conflict(2)]
        assert len(store.load("run-1")) == 2

    def test_an_append_to_an_unknown_run_is_refused(self, store: Store, author: Author) -> None:
        author.create()
        assert commit(store, author.step()) == [Conflict(None)]
        assert store.load("run-1") == []
        assert store.get("run-1") is None

    def test_an_append_before_the_create_of_its_run_is_refused(self, store: Store, author: Author) -> None:
        create, step = author.create(), author.step()
        assert commit(store, step, create) == [Conflict(None), COMMITTED]
        assert len(store.load("run-1")) == 1

    def test_a_refused_append_changes_nothing(self, store: Store) -> None:
        author = running(store)
        rival = author.stale()
        accept(store, author.step(), author.send())
        before = store.get("run-1"), store.load("run-1"), store.inbox("run-1")
        refused = rival.move(EventType.RUN_WAITING, wake_at=author.at, consumed=(1,))
        assert commit(store, refused) == [Conflict(3)]
        assert (store.get("run-1"), store.load("run-1"), store.inbox("run-1")) == before

    def test_a_refused_append_takes_no_neighbour_with_it(self, store: Store) -> None:
        lost, kept = running(store, "run-1"), running(store, "run-2")
        rival = lost.stale()
        accept(store, lost.step())
        fresh = Author("run-3", store.now())
        outcomes = commit(store, kept.step(), rival.step(), fresh.create(), kept.step())
        assert outcomes == [COMMITTED, Conflict(3), COMMITTED, COMMITTED]
        assert [len(store.load(run_id)) for run_id in ("run-1", "run-2", "run-3")] == [3, 4, 1]

    def test_a_refused_append_refuses_what_is_queued_behind_it(self, store: Store) -> None:
        author = running(store)
        rival = author.stale()
        accept(store, author.step(b"kept"))
        behind = [rival.step(b"lost"), rival.step(), rival.step()]
        assert commit(store, *behind) == [Conflict(3)] * 3
        assert len(store.load("run-1")) == 3

    def test_the_owner_goes_on_behind_somebody_who_was_too_late(self, store: Store) -> None:
        author = running(store)
        late = author.stale()
        accept(store, author.step())
        terminated = late.move(EventType.RUN_TERMINATED)
        assert commit(store, terminated, author.step(), author.completed()) == [Conflict(3), COMMITTED, COMMITTED]
        assert broken_link("run-1", EMPTY_TAIL, store.load("run-1")) is None
        assert row_of(store, "run-1").status == "completed"

    def test_two_writers_in_one_batch_do_not_both_get_the_place(self, store: Store) -> None:
        author = running(store)
        rival = author.stale()
        assert commit(store, author.step(b"1"), rival.step(b"2"), rival.step(b"3")) == [
            COMMITTED,
            Conflict(3),
            Conflict(3),
        ]
        assert [event.payload for event in store.load("run-1", after=2)] == [b"1"]

    def test_an_append_that_is_there_already_is_committed_again_without_effect(self, store: Store) -> None:
        author = running(store)
        append = author.move(EventType.RUN_WAITING, wake_at=author.at + SECOND)
        accept(store, append)
        before = store.get("run-1"), store.load("run-1")
        accept(store, append)
        accept(store, append, append)
        assert (store.get("run-1"), store.load("run-1")) == before

    def test_an_append_is_recognised_after_others_followed_it(self, store: Store) -> None:
        author = running(store)
        first = author.step(events=2)
        accept(store, first, author.step(), author.step())
        accept(store, first)
        assert len(store.load("run-1")) == 6

    def test_an_append_whose_events_have_ids_of_their_own_is_recognised(self, store: Store) -> None:
        append = running(store).step(events=3)
        append = replace(append, events=tuple(one._replace(commit_id=1000 + one.seq) for one in append.events))
        accept(store, append)
        accept(store, append)
        assert len(store.load("run-1")) == 5

    def test_one_append_twice_in_a_batch_is_stored_once(self, store: Store) -> None:
        author = running(store)
        append = author.step()
        accept(store, append, append, author.step())
        assert len(store.load("run-1")) == 4

    def test_a_batch_that_is_there_already_is_committed_again_without_effect(
        self, store: Store, author: Author
    ) -> None:
        batch: list[Write] = [author.create(), author.claimed(), author.step(events=2), author.completed()]
        accept(store, *batch)
        before = store.get("run-1"), store.load("run-1")
        accept(store, *batch)
        assert (store.get("run-1"), store.load("run-1")) == before

    def test_a_repeat_does_not_hide_that_the_rest_of_the_batch_is_new(self, store: Store) -> None:
        author, other = running(store, "run-1"), running(store, "run-2")
        append = author.step()
        accept(store, append)
        accept(store, append, author.step(), other.step())
        assert [len(store.load(run_id)) for run_id in ("run-1", "run-2")] == [4, 3]

    def test_the_row_changes_only_from_the_state_it_is_expected_in(self, store: Store) -> None:
        author = running(store)
        wrong = author.step()
        change = author.stale().completed().change
        assert change is not None
        for bad in (replace(change, before="waiting"), replace(change, epoch_before=0)):
            assert commit(store, Append("run-1", wrong.events, bad)) == [Conflict(2)]
        assert row_of(store, "run-1").status == "running"
        assert len(store.load("run-1")) == 2
        accept(store, Append("run-1", wrong.events, change))
        assert row_of(store, "run-1").status == "completed"

    def test_every_field_of_a_change_reaches_the_row(self, store: Store) -> None:
        author = running(store)
        author.at += SECOND
        accept(store, author.move(EventType.RUN_PARKED, detail="no code"))
        row = row_of(store, "run-1")
        assert (row.status, row.owner, row.wake_at, row.epoch) == ("parked", None, None, 1)
        assert (row.detail, row.updated_at) == ("no code", author.at)

    def test_after_a_take_over_no_append_of_the_old_owner_is_accepted(self, store: Store) -> None:
        old = running(store, owner="w1")
        new = old.stale()
        accept(store, new.claimed("w2"))
        assert commit(store, old.stale().step()) == [Conflict(3)]
        assert commit(store, old.stale().completed()) == [Conflict(3)]
        accept(store, new.step(), new.completed())
        assert row_of(store, "run-1").epoch == 2

    @pytest.mark.parametrize("op,digest", [("\ud800", 1), ("1", 2**63)], ids=["surrogate", "65 bits"])
    def test_what_cannot_be_stored_fails_alone(self, store: Store, op: str, digest: int) -> None:
        author, other, third = running(store, "run-1"), running(store, "run-2"), running(store, "run-3")
        append = author.step()
        poison = replace(append, events=(append.events[0]._replace(op=op, digest=digest),))
        outcomes = commit(store, other.step(), poison, author.step(), third.completed(), other.step())
        assert isinstance(outcomes[1], Failed)
        assert outcomes[2] == Conflict(2)
        assert [outcomes[place] for place in (0, 3, 4)] == [COMMITTED] * 3
        assert [len(store.load(run_id)) for run_id in ("run-1", "run-2", "run-3")] == [2, 4, 3]

    def test_an_append_without_events_fails_alone(self, store: Store) -> None:
        author, other = running(store, "run-1"), running(store, "run-2")
        change = author.stale().completed().change
        outcomes = commit(store, Append("run-1", (), change), other.step())
        assert isinstance(outcomes[0], Failed)
        assert outcomes[1] == COMMITTED
        assert row_of(store, "run-1").status == "running"

    def test_a_value_of_a_wrong_type_fails_alone(self, store: Store) -> None:
        author, other = running(store, "run-1"), running(store, "run-2")
        append = author.step()
        poison = replace(append, events=(append.events[0]._replace(payload={}),))  # type: ignore[arg-type]
        outcomes = commit(store, poison, other.step())
        assert isinstance(outcomes[0], Failed)
        assert outcomes[1] == COMMITTED

    def test_many_that_cannot_be_stored_fail_alone(self, store: Store) -> None:
        authors = [running(store, f"run-{n}") for n in range(40)]
        batch = []
        for n, author in enumerate(authors):
            append = author.step()
            batch.append(replace(append, events=(append.events[0]._replace(digest=2**64),)) if n % 3 == 0 else append)
        outcomes = commit(store, *batch)
        assert [isinstance(outcome, Failed) for outcome in outcomes] == [n % 3 == 0 for n in range(40)]
        assert [len(store.load(f"run-{n}")) for n in range(40)] == [2 if n % 3 == 0 else 3 for n in range(40)]
