"""The inbox: what others say to a run, and how it wakes the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.model.status import EventType
from perdure.model.write import COMMITTED, Closed, Conflict, Failed, Missing
from perdure.testing.author import Author
from perdure.testing.conformance.contract import SECOND, Contract, accept, claim, commit, enlist, row_of, running

if TYPE_CHECKING:
    from perdure.store.base import Store

LATER = 3600 * SECOND
CLOSE = 60 * SECOND
"""A client's idea of a server's time lags by as much as an answer took on its way."""


class MessagingContract(Contract):
    """`Send`, `Append.consumed`, and rule 4 of the lock."""

    def test_messages_are_numbered_from_one_in_order(self, store: Store) -> None:
        author = running(store)
        accept(store, author.send("a", b"1"), author.send("b", None))
        accept(store, author.send("c", b"\0"))
        assert [(one.n, one.kind, one.detail) for one in store.inbox("run-1")] == [
            (1, "a", b"1"),
            (2, "b", None),
            (3, "c", b"\0"),
        ]
        assert row_of(store, "run-1").inbox_n == 3

    def test_numbers_are_not_used_again(self, store: Store) -> None:
        author = running(store)
        accept(store, author.send("a"))
        accept(store, author.step(consumed=(1,)), author.send("b"))
        assert [(one.n, one.kind) for one in store.inbox("run-1")] == [(2, "b")]

    def test_consuming_is_part_of_the_append(self, store: Store) -> None:
        author = running(store)
        accept(store, author.send("a"), author.send("b"), author.send("c"))
        accept(store, author.step(consumed=(1, 3)))
        assert [one.kind for one in store.inbox("run-1")] == ["b"]

    def test_a_message_makes_a_waiting_run_due(self, store: Store) -> None:
        author = running(store)
        accept(store, author.move(EventType.RUN_WAITING, wake_at=store.now() + LATER))
        assert commit(store, author.send()) == [COMMITTED]
        wake_at = row_of(store, "run-1").wake_at
        assert wake_at is not None
        assert wake_at <= store.now() + CLOSE

    def test_a_message_makes_a_run_due_that_waits_for_messages_only(self, store: Store) -> None:
        author = running(store)
        accept(store, author.move(EventType.RUN_WAITING, wake_at=None))
        accept(store, author.send())
        enlist(store, "w2")
        assert [one.row.id for one in claim(store, "w2")] == ["run-1"]

    def test_a_message_makes_a_delayed_run_due(self, store: Store, author: Author) -> None:
        accept(store, author.create(wake_at=store.now() + LATER))
        accept(store, author.send())
        wake_at = row_of(store, "run-1").wake_at
        assert wake_at is not None
        assert wake_at <= store.now() + CLOSE

    def test_a_message_does_not_put_a_due_run_back(self, store: Store, author: Author) -> None:
        due = store.now() - SECOND
        accept(store, author.create(wake_at=due))
        accept(store, author.send())
        assert row_of(store, "run-1").wake_at == due

    def test_a_message_leaves_an_owned_run_to_its_owner(self, store: Store) -> None:
        author = running(store)
        accept(store, author.send())
        assert row_of(store, "run-1").wake_at is None

    def test_a_parked_or_paused_run_keeps_its_messages_and_sleeps_on(self, store: Store) -> None:
        for run_id, kind in (("run-1", EventType.RUN_PARKED), ("run-2", EventType.RUN_PAUSED)):
            author = running(store, run_id)
            accept(store, author.move(kind), author.send())
            assert row_of(store, run_id).wake_at is None
            assert len(store.inbox(run_id)) == 1

    def test_a_message_to_a_terminal_run_is_refused(self, store: Store) -> None:
        author = running(store)
        accept(store, author.completed())
        assert commit(store, author.send()) == [Closed("completed")]
        assert store.inbox("run-1") == []
        assert row_of(store, "run-1").inbox_n == 0

    def test_a_message_to_an_unknown_run_is_refused(self, store: Store, author: Author) -> None:
        assert commit(store, author.send()) == [Missing()]

    def test_a_message_to_a_purged_run_is_refused_with_what_it_left(self, store: Store) -> None:
        author = running(store)
        accept(store, author.completed(), author.purge())
        assert commit(store, author.send()) == [Missing(store.get("run-1"))]  # type: ignore[arg-type]

    def test_a_refused_message_takes_no_neighbour_with_it(self, store: Store, author: Author) -> None:
        other = running(store, "run-2")
        assert commit(store, other.step(), author.send(), other.send()) == [COMMITTED, Missing(), COMMITTED]

    def test_messages_and_appends_of_a_batch_keep_their_order(self, store: Store) -> None:
        author = running(store)
        assert commit(store, author.send(), author.completed(), author.send()) == [
            COMMITTED,
            COMMITTED,
            Closed("completed"),
        ]
        assert len(store.inbox("run-1")) == 1

    def test_a_message_can_be_sent_and_consumed_in_one_batch(self, store: Store) -> None:
        author = running(store)
        accept(store, author.send(), author.step(consumed=(1,)), author.send())
        assert [one.n for one in store.inbox("run-1")] == [2]

    def test_a_message_in_a_batch_with_a_conflict_is_sent_once(self, store: Store) -> None:
        author = running(store)
        rival = author.stale()
        accept(store, author.step())
        assert commit(store, author.send(), rival.step(), author.send()) == [COMMITTED, Conflict(3), COMMITTED]
        assert [one.n for one in store.inbox("run-1")] == [1, 2]

    def test_a_release_that_has_not_seen_a_message_is_due_at_once(self, store: Store) -> None:
        author = running(store)
        accept(store, author.send())
        accept(store, author.move(EventType.RUN_WAITING, wake_at=store.now() + LATER, inbox_seen=0))
        wake_at = row_of(store, "run-1").wake_at
        assert wake_at is not None
        assert wake_at <= store.now() + CLOSE

    def test_a_release_without_a_wake_up_time_does_not_lose_a_message(self, store: Store) -> None:
        author = running(store)
        accept(store, author.send())
        accept(store, author.move(EventType.RUN_WAITING, wake_at=None, inbox_seen=0))
        assert row_of(store, "run-1").wake_at is not None

    def test_a_release_that_has_seen_all_messages_sleeps(self, store: Store) -> None:
        author = running(store)
        accept(store, author.send(), author.send())
        wake_at = store.now() + LATER
        accept(store, author.move(EventType.RUN_WAITING, wake_at=wake_at, inbox_seen=2, consumed=(1,)))
        assert row_of(store, "run-1").wake_at == wake_at

    def test_parking_with_an_unseen_message_stays_parked(self, store: Store) -> None:
        author = running(store)
        accept(store, author.send())
        accept(store, author.move(EventType.RUN_PARKED))
        assert row_of(store, "run-1").wake_at is None

    def test_a_message_that_cannot_be_stored_fails_alone(self, store: Store) -> None:
        author = running(store)
        outcomes = commit(store, author.send("\ud800"), author.send("good"), author.step())
        assert isinstance(outcomes[0], Failed)
        assert outcomes[1:] == [COMMITTED, COMMITTED]
        assert [(one.n, one.kind) for one in store.inbox("run-1")] == [(1, "good")]

    def test_a_message_whose_detail_is_of_a_wrong_type_fails_alone(self, store: Store) -> None:
        author = running(store)
        outcomes = commit(store, author.send(detail={}), author.send("good"), author.step())  # type: ignore[arg-type]
        assert isinstance(outcomes[0], Failed)
        assert outcomes[1:] == [COMMITTED, COMMITTED]
        assert [(one.n, one.kind) for one in store.inbox("run-1")] == [(1, "good")]
