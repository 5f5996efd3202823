"""What one run tells another as its state changes: a message in the transaction of the append (`Change.tell`)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from perdure.model.run import Message
from perdure.model.status import EventType
from perdure.model.write import COMMITTED, Append, Blocked, Closed, Committed, Conflict, Failed, Missing
from perdure.testing.author import Author
from perdure.testing.conformance.contract import SECOND, Contract, accept, claim, commit, enlist, row_of, running

if TYPE_CHECKING:
    from perdure.model.write import Write
    from perdure.store.base import Store

LATER = 3600 * SECOND
CLOSE = 60 * SECOND
"""A client's idea of a server's time lags by as much as an answer took on its way."""


def telling(append: Append, run_id: str, kind: str = "returned", detail: bytes | None = b"{}") -> Append:
    """Return an append that also tells another run."""
    assert append.change is not None
    message = Message(run_id, 0, kind, append.change.at, detail)
    return replace(append, change=replace(append.change, tell=message))


def told(store: Store, run_id: str) -> list[tuple[int, bytes | None]]:
    """Return number and detail of the messages that wait for a run."""
    return [(one.n, one.detail) for one in store.inbox(run_id)]


def persist(store: Store, writes: list[Write]) -> None:
    """Commit writes as a writer does: what is blocked by somebody else is tried again."""
    while writes:
        outcomes = commit(store, *writes)
        assert {type(outcome) for outcome in outcomes} <= {Committed, Blocked}
        writes = [write for write, outcome in zip(writes, outcomes, strict=True) if isinstance(outcome, Blocked)]


class TellingContract(Contract):
    """`Change.tell`."""

    def test_an_append_puts_its_message_into_the_inbox_of_the_other_run(self, store: Store) -> None:
        caller, author = running(store, "caller"), running(store)
        append = telling(author.completed(), "caller", detail=b'{"op":"2"}')
        accept(store, append)
        assert append.change is not None
        assert append.change.tell is not None
        assert store.inbox("caller") == [append.change.tell._replace(n=1)]
        assert row_of(store, "caller").inbox_n == 1
        assert row_of(store, "caller").wake_at is None
        assert store.inbox("run-1") == []
        accept(store, caller.step(consumed=(1,)))
        assert store.inbox("caller") == []

    @pytest.mark.parametrize("wait_us", [LATER, None], ids=["until later", "for messages only"])
    def test_it_makes_a_waiting_run_due(self, store: Store, wait_us: int | None) -> None:
        caller, author = running(store, "caller"), running(store)
        wake_at = None if wait_us is None else store.now() + wait_us
        accept(store, caller.move(EventType.RUN_WAITING, wake_at=wake_at))
        accept(store, telling(author.completed(), "caller"))
        wake_at = row_of(store, "caller").wake_at
        assert wake_at is not None
        assert wake_at <= store.now() + CLOSE
        enlist(store, "w2")
        assert [one.row.id for one in claim(store, "w2")] == ["caller"]

    def test_a_release_that_has_not_seen_it_is_due_at_once(self, store: Store) -> None:
        caller, author = running(store, "caller"), running(store)
        accept(store, telling(author.completed(), "caller"))
        accept(store, caller.move(EventType.RUN_WAITING, wake_at=store.now() + LATER, inbox_seen=0))
        wake_at = row_of(store, "caller").wake_at
        assert wake_at is not None
        assert wake_at <= store.now() + CLOSE

    @pytest.mark.parametrize("first", ["release", "end"])
    def test_a_release_and_a_message_in_one_batch_leave_the_run_due(self, store: Store, first: str) -> None:
        caller, author = running(store, "caller"), running(store)
        release = caller.move(EventType.RUN_WAITING, wake_at=store.now() + LATER, inbox_seen=0)
        end = telling(author.completed(), "caller")
        accept(store, *((release, end) if first == "release" else (end, release)))
        wake_at = row_of(store, "caller").wake_at
        assert wake_at is not None
        assert wake_at <= store.now() + CLOSE
        assert told(store, "caller") == [(1, b"{}")]

    @pytest.mark.parametrize("kind", [EventType.RUN_PARKED, EventType.RUN_PAUSED])
    def test_a_parked_or_paused_run_keeps_it_and_sleeps_on(self, store: Store, kind: EventType) -> None:
        caller, author = running(store, "caller"), running(store)
        accept(store, caller.move(kind), telling(author.completed(), "caller"))
        assert row_of(store, "caller").wake_at is None
        assert told(store, "caller") == [(1, b"{}")]

    def test_whoever_has_ended_gets_nothing_and_the_append_is_committed(self, store: Store) -> None:
        caller, author = running(store, "caller"), running(store)
        accept(store, caller.completed())
        before = store.get("caller")
        accept(store, telling(author.completed(), "caller"))
        assert row_of(store, "run-1").status == "completed"
        assert (store.get("caller"), store.inbox("caller")) == (before, [])

    def test_whoever_is_not_there_gets_nothing_and_the_append_is_committed(self, store: Store) -> None:
        author = running(store)
        accept(store, telling(author.completed(), "nobody"))
        assert row_of(store, "run-1").status == "completed"
        assert store.inbox("nobody") == []
        assert store.get("nobody") is None

    def test_whoever_was_purged_gets_nothing_and_the_append_is_committed(self, store: Store) -> None:
        caller, author = running(store, "caller"), running(store)
        accept(store, caller.completed(), caller.purge())
        accept(store, telling(author.completed(), "caller"))
        assert row_of(store, "run-1").status == "completed"
        assert store.inbox("caller") == []

    def test_whoever_ends_in_the_same_batch_before_it_gets_nothing(self, store: Store) -> None:
        caller, author = running(store, "caller"), running(store)
        accept(store, caller.completed(), telling(author.completed(), "caller"))
        assert store.inbox("caller") == []

    def test_a_run_can_tell_itself(self, store: Store) -> None:
        author = running(store)
        accept(store, telling(author.move(EventType.RUN_WAITING, wake_at=store.now() + LATER), "run-1"))
        assert told(store, "run-1") == [(1, b"{}")]
        wake_at = row_of(store, "run-1").wake_at
        assert wake_at is not None
        assert wake_at <= store.now() + CLOSE

    def test_a_taken_place_tells_nothing(self, store: Store) -> None:
        running(store, "caller")
        author = running(store)
        late = author.stale()
        accept(store, author.step())
        before = store.get("caller")
        assert commit(store, telling(late.completed(), "caller")) == [Conflict(3)]
        assert (store.get("caller"), store.inbox("caller")) == (before, [])

    def test_a_state_that_moved_tells_nothing(self, store: Store) -> None:
        running(store, "caller")
        append = telling(running(store).completed(), "caller")
        assert append.change is not None
        moved = replace(append, change=replace(append.change, epoch_before=7))
        assert commit(store, moved) == [Conflict(2)]
        assert store.inbox("caller") == []

    def test_an_append_that_is_there_already_does_not_tell_again(self, store: Store) -> None:
        caller = running(store, "caller")
        append = telling(running(store).completed(), "caller")
        accept(store, append)
        accept(store, append, append)
        assert told(store, "caller") == [(1, b"{}")]
        accept(store, append, caller.step(consumed=(1,)), append)
        assert row_of(store, "caller").inbox_n == 1
        assert store.inbox("caller") == []

    def test_one_append_twice_in_a_batch_tells_once(self, store: Store) -> None:
        running(store, "caller")
        append = telling(running(store).completed(), "caller")
        accept(store, append, append)
        assert told(store, "caller") == [(1, b"{}")]

    def test_many_that_tell_one_run_in_one_batch_are_numbered(self, store: Store) -> None:
        caller = running(store, "caller")
        authors = [running(store, f"run-{n}") for n in range(40)]
        accept(store, *(telling(one.completed(), "caller", detail=one.run_id.encode()) for one in authors))
        found = told(store, "caller")
        assert [n for n, _ in found] == list(range(1, 41))
        assert {detail for _, detail in found} == {one.run_id.encode() for one in authors}
        assert row_of(store, "caller").inbox_n == 40
        accept(store, caller.step(consumed=tuple(range(1, 41))))
        assert store.inbox("caller") == []

    def test_what_is_told_and_what_is_sent_in_one_batch_is_numbered(self, store: Store) -> None:
        caller = running(store, "caller")
        accept(store, caller.send("a"), telling(running(store).completed(), "caller"), caller.send("b"))
        assert sorted(one.n for one in store.inbox("caller")) == [1, 2, 3]
        assert sorted(one.kind for one in store.inbox("caller")) == ["a", "b", "returned"]

    def test_it_is_told_in_a_batch_of_which_another_write_is_refused(self, store: Store) -> None:
        caller, other = running(store, "caller"), running(store, "run-2")
        accept(store, caller.move(EventType.RUN_WAITING, wake_at=store.now() + LATER))
        late = other.stale()
        accept(store, other.step())
        ends = [telling(running(store, f"end-{n}").completed(), "caller") for n in range(3)]
        nobody = Author("nobody", store.now())
        batch: list[Write] = [
            ends[0],
            late.step(b"2"),
            ends[1],
            nobody.send(),
            telling(late.completed(), "caller"),
            ends[2],
        ]
        outcomes = commit(store, *batch)
        assert outcomes == [COMMITTED, Conflict(3), COMMITTED, Missing(), Conflict(3), COMMITTED]
        assert [n for n, _ in told(store, "caller")] == [1, 2, 3]
        wake_at = row_of(store, "caller").wake_at
        assert wake_at is not None
        assert wake_at <= store.now() + CLOSE

    def test_whoever_has_ended_is_not_told_in_a_batch_of_which_another_write_is_refused(self, store: Store) -> None:
        caller, author = running(store, "caller"), running(store)
        accept(store, caller.completed())
        outcomes = commit(store, telling(author.completed(), "caller"), caller.send())
        assert outcomes == [COMMITTED, Closed("completed")]
        assert store.inbox("caller") == []

    @pytest.mark.parametrize("run_id, kind", [("caller", "\ud800"), ("\ud800", "returned")], ids=["kind", "run"])
    def test_a_message_that_cannot_be_stored_fails_its_own_append_only(
        self, store: Store, run_id: str, kind: str
    ) -> None:
        running(store, "caller")
        one, bad, two = (running(store, f"run-{n}") for n in range(3))
        outcomes = commit(
            store, telling(one.completed(), "caller"), telling(bad.completed(), run_id, kind),
            telling(two.completed(), "caller"),
        )  # fmt: skip
        assert isinstance(outcomes[1], Failed)
        assert [outcomes[0], outcomes[2]] == [COMMITTED] * 2
        assert [n for n, _ in told(store, "caller")] == [1, 2]
        assert row_of(store, "run-1").status == "running"
        assert len(store.load("run-1")) == 2

    def test_a_detail_of_a_wrong_type_fails_its_own_append_only(self, store: Store) -> None:
        running(store, "caller")
        bad, good = running(store, "run-1"), running(store, "run-2")
        poison = telling(bad.completed(), "caller", detail={})  # type: ignore[arg-type]
        outcomes = commit(store, poison, telling(good.completed(), "caller"))
        assert isinstance(outcomes[0], Failed)
        assert outcomes[1] == COMMITTED
        assert told(store, "caller") == [(1, b"{}")]
        assert row_of(store, "run-1").status == "running"

    def test_two_processes_tell_one_run(self, store: Store, second: Store) -> None:
        running(store, "caller")
        mine, theirs = running(store, "run-1"), running(store, "run-2")
        accept(store, telling(mine.completed(), "caller"))
        accept(second, telling(theirs.completed(), "caller"))
        assert [n for n, _ in told(store, "caller")] == [1, 2]

    def test_two_processes_change_what_the_other_one_tells(self, store: Store, second: Store) -> None:
        sides = [[running(store, f"{side}-{n}") for n in range(8)] for side in "ab"]
        failures: list[BaseException] = []

        def work(handle: Store, mine: list[Author], theirs: list[Author]) -> None:
            try:
                for _ in range(5):
                    pairs = zip(mine, reversed(theirs), strict=True)
                    rests = [(one.move(EventType.RUN_WAITING, wake_at=one.at), other.run_id) for one, other in pairs]
                    persist(handle, [*(telling(*rest) for rest in rests), *(one.claimed() for one in mine)])
            except BaseException as error:  # noqa: BLE001 - told by the test
                failures.append(error)

        threads = [
            threading.Thread(target=work, args=(handle, *pair))
            for handle, pair in ((store, sides), (second, sides[::-1]))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        for author in (*sides[0], *sides[1]):
            assert [n for n, _ in told(store, author.run_id)] == list(range(1, 6))
            assert row_of(store, author.run_id).status == "running"
