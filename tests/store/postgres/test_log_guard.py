"""An event belongs to a run: whoever continues a log and whoever purges it meet, whatever comes first."""

from __future__ import annotations

import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from perdure.model.run import Tombstone
from perdure.model.write import COMMITTED, Blocked, Conflict, Outcome, Write
from perdure.store.base import Store, StoreOptions, open_store
from perdure.testing.author import Author
from perdure.testing.conformance.contract import accept, running
from perdure.verify.database import verify
from tests.servers.fixtures import Database
from tests.servers.postgres import Postgres
from tests.servers.server import run_lowered

EVENT = "insert into perdure.event (run_id, seq, type, attempt, at, epoch, commit_id, chain)"
PATIENCE_S = 10.0


@pytest.fixture
def other(database: Database, store: Store) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Give a connection of somebody else's to the database of ``store``."""
    with psycopg.connect(database.url) as connection:
        yield connection


@pytest.fixture
def meanwhile() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def ended(store: Store, run_id: str) -> tuple[Author, Author]:
    """Record a run that has ended. Return its author, and one who does not know."""
    author = running(store, run_id)
    stale = author.stale()
    accept(store, author.completed())
    return author, stale


def purge_slowly(other: psycopg.Connection[tuple[object, ...]], run_id: str) -> None:
    """Purge a run in a transaction that goes on."""
    other.execute(
        "insert into perdure.request (run_id, workflow, input_digest, status, purged_at) "
        "values (%s, 'order', 7, 'completed', 1)",
        (run_id,),
    )
    other.execute("delete from perdure.event where run_id = %s", (run_id,))
    other.execute("delete from perdure.run where id = %s", (run_id,))


def answer_to(store: Store, write: Write) -> Outcome:
    """Commit a write, however often it takes."""
    while True:
        outcomes = store.commit([write])
        assert outcomes is not None
        (outcome,) = outcomes
        if not isinstance(outcome, Blocked):
            return outcome


def until_it_waits(database: Database, answer: Future[Outcome]) -> None:
    """Wait until a session waits for another one's lock."""
    deadline = time.monotonic() + PATIENCE_S
    waiting = "select 1 from pg_stat_activity where datname = ? and wait_event_type = 'Lock'"
    while not database.rows(waiting, database.name):
        assert time.monotonic() < deadline
        assert not answer.done()


def count(database: Database, run_id: str) -> int:
    return int(database.rows("select count(*) from event where run_id = ?", run_id)[0][0])


def append(other: psycopg.Connection[tuple[object, ...]], run_id: str, events: int) -> None:
    """Continue a log in a transaction that goes on. Several events at once hold the gate open."""
    rows = ", ".join(f"('{run_id}', {seq}, 'step_completed', 1, 1, 1, 1, '')" for seq in range(9, 9 + events))
    other.execute(f"{EVENT} values {rows}".encode())


@pytest.mark.parametrize("events", [1, 3])
@pytest.mark.parametrize("place", ["that was purged", "behind the end"])
def test_who_continues_a_log_waits_for_a_purge_under_way_and_is_refused(
    store: Store,
    other: psycopg.Connection[tuple[object, ...]],
    meanwhile: ThreadPoolExecutor,
    database: Database,
    place: str,
    events: int,
) -> None:
    author, stale = ended(store, "run-1")
    purge_slowly(other, "run-1")
    late = (stale if place == "that was purged" else author).step(events=events)
    answer = meanwhile.submit(answer_to, store, late)
    until_it_waits(database, answer)
    other.commit()
    assert answer.result() == Conflict(None)
    assert count(database, "run-1") == 0


@pytest.mark.parametrize("events", [1, 3])
def test_a_purge_waits_for_who_continues_the_log_and_takes_that_along(
    store: Store,
    other: psycopg.Connection[tuple[object, ...]],
    meanwhile: ThreadPoolExecutor,
    database: Database,
    events: int,
) -> None:
    author, _ = ended(store, "run-1")
    append(other, "run-1", events)
    answer = meanwhile.submit(answer_to, store, author.purge())
    until_it_waits(database, answer)
    other.commit()
    assert answer.result() is COMMITTED
    assert count(database, "run-1") == 0
    assert isinstance(store.get("run-1"), Tombstone)


def test_nobody_waits_for_the_purge_of_another_run(
    store: Store, other: psycopg.Connection[tuple[object, ...]], database: Database
) -> None:
    """It may have stopped half-way, with all its locks."""
    ended(store, "run-1")
    going_on = running(store, "run-2")
    purge_slowly(other, "run-1")
    for events in (1, 3) * 5:
        accept(store, going_on.step(events=events))
    other.rollback()
    assert count(database, "run-1") == 3


def test_a_purge_waits_for_no_transaction_that_has_continued_another_log(
    store: Store, other: psycopg.Connection[tuple[object, ...]]
) -> None:
    gone, _ = ended(store, "run-1")
    held, _ = ended(store, "run-2")
    append(other, "run-2", 1)
    assert store.commit([gone.purge()]) == [COMMITTED]
    purge = held.purge()
    assert store.commit([purge]) == [Blocked("run-2")]
    other.rollback()
    accept(store, purge)


def test_a_purge_that_waits_for_the_gate_keeps_nobody_waiting(
    store: Store,
    other: psycopg.Connection[tuple[object, ...]],
    database: Database,
    meanwhile: ThreadPoolExecutor,
    open_more: Callable[[], Store],
) -> None:
    """The connection of somebody who has added many events and went away: it is tried again until that has ended."""
    gone, _ = ended(store, "run-1")
    running(store, "run-2")
    going_on = running(store, "run-3")
    append(other, "run-2", 2)
    mine = open_more()
    answer = meanwhile.submit(answer_to, store, gone.purge())
    until_it_waits(database, answer)
    began = time.monotonic()
    for events in (1, 3) * 10:
        accept(mine, going_on.step(events=events))
    assert time.monotonic() - began < 4.0, "each would have waited for 0.3 s"
    assert not answer.done()
    other.rollback()
    assert answer.result() is COMMITTED


def test_purges_come_through_beside_batches_without_a_pause(
    store: Store, database: Database, open_more: Callable[[], Store]
) -> None:
    stop = threading.Event()

    def go_on(name: str) -> None:
        mine = open_more()
        authors = [running(mine, f"{name}-{n}") for n in range(20)]
        while not stop.is_set():
            accept(mine, *[author.step() for author in authors])

    runs = [ended(store, f"run-{n}")[0] for n in range(30)]
    threads = [threading.Thread(target=go_on, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    try:
        answers = [answer_to(store, author.purge()) for author in runs]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert answers == [COMMITTED] * 30
    assert database.rows("select count(*) from event where run_id not in (select id from run)") == [(0,)]


def test_a_start_in_somebodys_open_transaction_is_in_no_purges_way(
    store: Store, other: psycopg.Connection[tuple[object, ...]]
) -> None:
    author, _ = ended(store, "run-1")
    start(other, "run-2")
    assert store.commit([author.purge()]) == [COMMITTED]


def start(other: psycopg.Connection[tuple[object, ...]], run_id: str) -> None:
    """Start a run in a transaction that goes on."""
    other.execute(
        "insert into perdure.run (id, workflow, workflow_version, status, queue, priority, epoch, inbox_n, "
        "input_digest, created_at, updated_at) values (%s, 'order', 'v1', 'pending', 'default', 0, 0, 0, 7, 1, 1)",
        (run_id,),
    )
    other.execute(f"{EVENT} values (%s, 1, 'run_started', 1, 1, 0, 1, '')".encode(), (run_id,))


@pytest.mark.parametrize("seq", [1, 9])
@pytest.mark.parametrize("isolation", list(psycopg.IsolationLevel)[1:])
def test_a_transaction_that_still_sees_a_purged_run_cannot_continue_its_log(
    store: Store,
    other: psycopg.Connection[tuple[object, ...]],
    database: Database,
    isolation: psycopg.IsolationLevel,
    seq: int,
) -> None:
    author, _ = ended(store, "run-1")
    other.isolation_level = isolation
    other.execute("select 1")
    accept(store, author.purge())
    is_new = isolation is psycopg.IsolationLevel.READ_COMMITTED
    with pytest.raises(psycopg.errors.ForeignKeyViolation if is_new else psycopg.errors.SerializationFailure):
        other.execute(f"{EVENT} values ('run-1', %s, 'step_completed', 1, 1, 1, 1, '')".encode(), (seq,))
    other.rollback()
    assert count(database, "run-1") == 0


def test_a_transaction_that_still_sees_a_purged_run_cannot_start_it_again_without_notice(
    store: Store, other: psycopg.Connection[tuple[object, ...]]
) -> None:
    author, _ = ended(store, "run-1")
    other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    other.execute("select 1")
    accept(store, author.purge())
    with pytest.raises(psycopg.errors.SerializationFailure):
        start(other, "run-1")


@pytest.mark.parametrize("events", [1, 3])
def test_whoever_may_append_needs_no_rights_to_runs(
    store: Store,
    other: psycopg.Connection[tuple[object, ...]],
    database: Database,
    events: int,
) -> None:
    running(store, "run-1")
    role = f"appender_{secrets.token_hex(4)}"
    database.execute(f"create role {role}")
    try:
        database.execute(f"grant usage on schema perdure to {role}")
        database.execute(f"grant insert on perdure.event to {role}")
        other.execute(f"set role {role}".encode())
        append(other, "run-1", events)
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            append(other, "run-9", events)
        other.rollback()
    finally:
        database.execute(f"drop owned by {role}")
        database.execute(f"drop role {role}")


def test_what_a_purge_cannot_see_it_does_not_leave_behind(
    store: Store, other: psycopg.Connection[tuple[object, ...]]
) -> None:
    ended(store, "run-1")
    other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="READ COMMITTED only"):
        purge_slowly(other, "run-1")


@pytest.mark.parametrize(
    "statement",
    ["update perdure.run set id = 'run-9'", "truncate perdure.run cascade", "truncate perdure.run, perdure.inbox"],
)
def test_no_log_loses_its_run(store: Store, database: Database, statement: str) -> None:
    running(store, "run-1")
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
        database.execute(statement)


def test_an_event_without_a_run_and_a_log_without_one_are_refused(store: Store, database: Database) -> None:
    running(store, "run-1")
    for seq in (1, 2):
        with pytest.raises(psycopg.errors.ForeignKeyViolation, match="run run-9, which is not there"):
            database.execute(f"{EVENT} values ('run-9', {seq}, 'run_started', 1, 1, 0, 1, '')")
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="append-only"):
        database.execute("delete from perdure.run where id = 'run-1'")
    assert count(database, "run-1") == 2


def test_purges_beside_workers_that_know_nothing_leave_nothing(
    store: Store, database: Database, open_more: Callable[[], Store]
) -> None:
    """Many stale appends and many purges at once: no log without its run, and every answer is true."""
    runs = [ended(store, f"run-{n}") for n in range(60)]
    answers: list[Outcome] = []

    def continue_all(part: list[tuple[Author, Author]]) -> None:
        mine = open_more()
        for author, stale in part:
            answers.append(answer_to(mine, stale.stale().step()))
            answers.append(answer_to(mine, stale.stale().step(events=3)))
            answer_to(mine, author.stale().step())  # behind the end there is room, until the purge

    threads = [threading.Thread(target=continue_all, args=(part,)) for part in (runs, runs[::-1])]
    for thread in threads:
        thread.start()
    for author, _ in runs:
        assert answer_to(store, author.purge()) is COMMITTED
    for thread in threads:
        thread.join()
    assert len(answers) == 2 * 2 * 60
    assert {type(answer) for answer in answers} == {Conflict}
    assert database.rows("select count(*) from event where run_id not in (select id from run)") == [(0,)]
    assert {type(store.get(f"run-{n}")) for n in range(60)} == {Tombstone}
    assert verify(database.url).findings == []


@pytest.mark.parametrize(
    "parts", [[[]], [["--schema-only"], ["--data-only", "--disable-triggers"]]], ids=["whole", "parts"]
)
def test_a_dump_can_be_restored(database: Database, store: Store, parts: list[list[str]]) -> None:
    assert isinstance(database.server, Postgres)
    folder = database.server.programs
    gone, _ = ended(store, "run-1")
    kept = running(store, "run-2")
    accept(store, gone.purge(), kept.step(events=3))
    copy = Database(database.server, database.server.new_database())
    for part in parts:
        dump = run_lowered(folder / "pg_dump", "--schema=perdure", *part, "--dbname", database.url)
        subprocess.run(
            [folder / "psql", "--quiet", "--set=ON_ERROR_STOP=1", "--dbname", copy.url],
            input=dump, text=True, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    with closing(open_store(copy.url, StoreOptions())) as restored:
        restored.open()
        assert len(restored.load("run-2")) == 5
        assert restored.commit([gone.stale().step(events=2)]) == [Conflict(None)]
        accept(restored, kept.step(events=2))
    copy.drop()
