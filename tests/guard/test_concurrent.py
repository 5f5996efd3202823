"""Two that come at once: the second waits for the first, or is told; the effect happens once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest

from perdure import GuardBusy, StateMismatch
from tests.guard.clients import KINDS, Client, Place

CONCURRENT = ("sqlite3", "apsw", "psycopg", "psycopg-async", "pymysql", "django-postgresql", "sqlalchemy-async-mysql")
LEVELS = ("read committed", "repeatable read", "serializable")
LOOK_S = 0.15
LONG_S = 10

concurrent = pytest.mark.parametrize("kind", CONCURRENT)


@contextmanager
def new_client(kind: str, place: Place) -> Iterator[Client]:
    with closing(KINDS[kind][0](place)) as client:
        yield client


class Second:
    """What another client does meanwhile, on a thread of its own."""

    def __init__(self, kind: str, place: Place, act: Callable[[Client], object]) -> None:
        self.begun = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._future: Future[object] = self._pool.submit(self._run, kind, place, act)

    def _run(self, kind: str, place: Place, act: Callable[[Client], object]) -> object:
        with new_client(kind, place) as client:
            self.begun.set()
            return act(client)

    def waits(self) -> bool:
        """Whether it is still at it after a look at it."""
        assert self.begun.wait(LONG_S)
        with pytest.raises(TimeoutError):
            self._future.result(LOOK_S)
        return True

    def result(self) -> object:
        with self._pool:
            return self._future.result(LONG_S)


def guarded(client: Client) -> object:
    with client.transaction(), client.once("req-1") as once:
        if once.first:
            client.execute("insert into ledger values ('second')")
            once.answer = "second"
    return once.answer


def effects(client: Client) -> list[str]:
    with client.transaction():
        return [row[0] for row in client.execute("select what from ledger")]


@concurrent
def test_the_second_waits_and_gets_the_answer_of_the_first(client: Client, kind: str, place: Place) -> None:
    with client.transaction():
        with client.once("req-1") as once:
            client.execute("insert into ledger values ('first')")
            once.answer = "first"
        second = Second(kind, place, guarded)
        assert second.waits()
    assert second.result() == "first"
    assert effects(client) == ["first"]


@concurrent
def test_the_second_does_it_if_the_first_rolls_back(client: Client, kind: str, place: Place) -> None:
    with pytest.raises(ZeroDivisionError), client.transaction():
        with client.once("req-1") as once:
            client.execute("insert into ledger values ('first')")
            once.answer = "first"
        second = Second(kind, place, guarded)
        assert second.waits()
        raise ZeroDivisionError
    assert second.result() == "second"
    assert effects(client) == ["second"]


def insert(client: Client) -> bool:
    return client.insert("shipment", {"order_id": 1, "step": "ship"})


def ship(client: Client) -> bool:
    return client.change("orders", {"id": 1}, before={"state": "paid"}, after={"state": "shipped"})


def cancel(client: Client) -> bool:
    return client.change("orders", {"id": 1}, before={"state": "paid"}, after={"state": "cancelled"})


def committed(act: Callable[[Client], bool]) -> Callable[[Client], bool]:
    def run(client: Client) -> bool:
        with client.transaction():
            return act(client)

    return run


@concurrent
def test_the_second_of_two_rows_or_changes_waits_and_is_told(client: Client, kind: str, place: Place) -> None:
    with client.transaction():
        client.execute("insert into orders values (1, 'paid', null)")
    for act in (insert, ship):
        with client.transaction():
            assert act(client)
            second = Second(kind, place, committed(act))
            assert second.waits()
        assert second.result() is False
    with pytest.raises(StateMismatch, match="shipped"):
        Second(kind, place, committed(cancel)).result()


@concurrent
def test_a_wait_that_is_too_long_is_told_as_busy(client: Client, kind: str, place: Place) -> None:
    def impatient(other: Client) -> object:
        if place.dialect == "postgresql":
            other.execute("set lock_timeout = '50ms'")
        elif place.dialect == "mysql":
            other.execute("set innodb_lock_wait_timeout = 1")
            other.rollback()  # a statement may have begun a transaction
        else:
            other.raw.execute("pragma busy_timeout = 0")
            other.raw.execute("begin")
        if place.dialect != "sqlite":
            other.begin()
        try:
            with other.once("req-1"):
                return "never"
        finally:
            other.rollback()

    with (
        client.transaction(),
        client.once("req-1"),
        pytest.raises(GuardBusy, match="roll back and do the whole transaction again"),
    ):
        Second(kind, place, impatient).result()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["psycopg", "pymysql"])
def test_a_snapshot_from_before_never_makes_it_first_again(client: Client, kind: str, place: Place, level: str) -> None:
    def late(other: Client) -> object:
        if kind == "pymysql":
            other.execute(f"set session transaction isolation level {level}")
            other.begin()
        else:
            other.execute(f"set transaction isolation level {level}")
        seen = other.execute("select count(*) from ledger"), other.execute("select count(*) from perdure_guard")
        assert seen == ([(0,)], [(0,)])
        ready.set()
        assert go.wait(LONG_S)
        try:
            with other.once("req-1") as once:
                return ("first", None) if once.first else ("repeat", once.answer)
        except GuardBusy:
            return ("busy", None)
        finally:
            other.rollback()

    ready, go = threading.Event(), threading.Event()
    second = Second(kind, place, late)
    assert ready.wait(LONG_S)
    if (kind, level) == (
        "pymysql",
        "serializable",
    ):  # its reads have locked the tables: it comes first, and nothing else
        go.set()
        assert second.result() == ("first", None)
        return
    with client.transaction(), client.once("req-1") as once:
        once.answer = "first"
    go.set()
    repeat = kind == "pymysql" or level == "read committed"
    assert second.result() == (("repeat", "first") if repeat else ("busy", None))


@concurrent
def test_a_crowd_does_it_once(client: Client, kind: str, place: Place) -> None:
    crowd, rounds = 6, 12
    failures = [0]

    def member(number: int) -> list[Any]:
        with new_client(kind, place) as other:
            return [attempt(other, number, turn) for turn in range(rounds)]

    def attempt(other: Client, number: int, turn: int) -> Any:
        while True:
            try:
                with other.transaction(), other.once(f"req-{turn}", body=turn) as once:
                    if once.first:
                        other.execute("insert into ledger values (?)", f"req-{turn}")
                        once.answer = number
                        if failures[0] < rounds:
                            failures[0] += 1
                            raise ZeroDivisionError
            except (GuardBusy, ZeroDivisionError):
                continue
            return once.answer

    with ThreadPoolExecutor(crowd) as pool:
        answers = list(pool.map(member, range(crowd)))
    assert all(member == answers[0] for member in answers)
    assert failures[0] >= rounds
    assert sorted(effects(client)) == sorted(f"req-{turn}" for turn in range(rounds))
