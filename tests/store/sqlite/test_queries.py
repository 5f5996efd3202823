"""The cost of a statement follows what it returns, not what the tables hold."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from perdure.model.claim import ClaimRequest
from perdure.model.filter import RunFilter
from perdure.model.write import COMMITTED, SetQueue
from perdure.store.base import StoreOptions
from perdure.store.sqlite import SqliteStore, batch
from perdure.store.sqlite.batch import SQL
from perdure.testing.author import Author, claims_for, worker

STATEMENTS = {
    name: text
    for name, text in SQL.items()
    if re.match(r"(select|insert|update|delete|with)\b", text) and not text.endswith("values")
}
STATEMENTS |= {"change_run of many": batch._CHANGE_RUN[8], "count_event of many": batch._COUNT_EVENT[8]}
SMALL = {"worker", "meta", "schema_migration", "sqlite_schema"}
SCANS = {
    "count_runs": "SCAN run USING COVERING INDEX run_listing",
    "standing": "SCAN run USING COVERING INDEX run_due",
    "used_versions": "SCAN run",  # once for a collection that has something to purge
    "version_usage": "SCAN run",
}
NOT_DUE = 10**17


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "runs.db", StoreOptions(durability="process"))
    store.open()
    yield store
    store.close()


def plan(connection: apsw.Connection, statement: str) -> list[str]:
    numbered = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    count = max(numbered) if numbered else statement.count("?")
    return [str(row[3]) for row in connection.execute(f"explain query plan {statement}", [None] * count).fetchall()]


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_reads_a_whole_table(store: SqliteStore, name: str) -> None:
    found = plan(store._opened().writer, STATEMENTS[name])
    scans = [line for line in found if re.match(r"SCAN (run|r|event_log|e|inbox|tag|request)\b", line)]
    assert scans == ([SCANS[name]] if name in SCANS else [])


def test_the_hot_tables_have_two_secondary_indexes_in_all(store: SqliteStore) -> None:
    rows = store._opened().writer.execute(
        "select tbl_name, name from sqlite_schema where type = 'index' and sql is not null"
        " and tbl_name in ('run', 'event_log', 'inbox', 'tag') order by name"
    )
    assert rows.fetchall() == [("run", "run_due"), ("run", "run_listing")]


def test_a_listing_of_all_states_reads_the_end_of_the_index_only(store: SqliteStore) -> None:
    fill(store, 3000)
    assert steps(store, "reader", lambda: store.list(RunFilter(limit=5))) < 3000


def steps(store: SqliteStore, which: str, call: object) -> int:
    """Count the virtual machine's steps, in units of ten: a measure of work that no other load disturbs."""
    connection = getattr(store._opened(), which)
    count = 0

    def tick() -> bool:
        nonlocal count
        count += 10
        return False

    connection.set_progress_handler(tick, 10)
    call()  # type: ignore[operator]
    connection.set_progress_handler(None)
    return count


def fill(
    store: SqliteStore, number: int, *, workflow: str = "order", wake_at: int = NOT_DUE, priority: int = 0
) -> None:
    """Insert many sleeping runs, the short way."""
    connection = store._opened().writer
    first = connection.execute("select coalesce(max(no), 0) from run").get
    connection.execute(
        """
        with recursive n(i) as (select ?1 union all select i + 1 from n where i < ?1 + ?2 - 1)
        insert into run (
            id, workflow, workflow_version, status, queue, priority, wake_at, owner, epoch, inbox_n, deadline_at,
            input_digest, tags, detail, created_at, updated_at
        )
        select 'sleeper-' || i, ?3, 'v1', 'waiting', 'default', ?5, ?4, null, 1, 0, null, 0, null, null, i, i from n
        """,
        (first, number, workflow, wake_at, priority),
    )


def claim_steps(store: SqliteStore) -> int:
    request = ClaimRequest("w1", ("default", "other"), ("0 order", "0 refund"), 10)
    return steps(store, "writer", lambda: store.claim(request, claims_for("w1")))


@pytest.mark.parametrize("kind", ["not due", "foreign"])
def test_a_claim_costs_the_same_however_much_is_not_for_it(store: SqliteStore, kind: str) -> None:
    store.register(worker("w1", store.now()))
    costs = []
    for number in (10, 20_000):
        if kind == "not due":
            fill(store, number, priority=3)
        else:
            fill(store, number, workflow="foreign", wake_at=1, priority=3)
        author = Author(f"run-{number}", store.now())
        store.commit([author.create()])
        costs.append(claim_steps(store))
        assert store.owned("w1").keys() >= {author.run_id}
    assert costs[1] < costs[0] * 1.5 + 100


def test_a_claim_costs_little_more_for_each_priority_in_use(store: SqliteStore) -> None:
    store.register(worker("w1", store.now()))
    for priority in range(50):
        fill(store, 40, priority=priority)
    assert claim_steps(store) < 50 * 400


def test_a_claim_of_few_does_not_read_all_that_is_due(store: SqliteStore) -> None:
    store.register(worker("w1", store.now()))
    fill(store, 20_000, wake_at=1)
    connection = store._opened().writer
    connection.execute(
        "insert into event_log (run_no, seq, type, attempt, at, epoch, commit_id, chain)"
        " select no, 1, 'run_started', 0, 0, 0, 0, x'00' from run"
    )
    assert claim_steps(store) < 10_000
    assert len(store.owned("w1")) == 10


def test_stats_skip_what_is_not_due(store: SqliteStore) -> None:
    fill(store, 20_000)
    fill(store, 5, workflow="refund", wake_at=1)
    counted = steps(store, "reader", lambda: [store._opened().reader.execute(SQL["pairs"]).fetchall()])
    assert counted < 1000
    (waiting,) = store.stats().waiting
    assert (waiting.workflow, waiting.due) == ("refund", 5)


def set_queue(store: SqliteStore, **values: int) -> None:
    write = SetQueue("default", tuple(values.items()), 1, "ada", "", secrets.randbits(60))
    assert store.commit([write]) == [COMMITTED]


def with_logs(store: SqliteStore) -> None:
    store._opened().writer.execute(
        "insert or ignore into event_log (run_no, seq, type, attempt, at, epoch, commit_id, chain)"
        " select no, 1, 'run_started', 0, 0, 0, 0, x'00' from run"
    )


def keyed(store: SqliteStore, number: int, keys: int, *, wake_at: int = 1) -> None:
    """Insert many runs that have one of so many partition keys."""
    fill(store, number, wake_at=wake_at)
    store._opened().writer.execute(
        "update run set partition_key = 'k' || (no % ?), wake_at = wake_at where id like 'sleeper-%'", (keys,)
    )


LIMITS: dict[str, tuple[dict[str, int], int | None]] = {
    "keys": ({"concurrency_per_key": 1, "fair": 1}, 2000),
    "one key that is full": ({"concurrency_per_key": 1}, 1),
    "full": ({"concurrency": 1}, None),
    "paused": ({"paused": 1}, None),
    "paused, with keys": ({"paused": 1, "fair": 1}, 2000),
    "used up": ({"rate_limit": 1, "rate_us": 10**12}, None),
    "ageing": ({"ageing_us": 10**6}, None),
}


@pytest.mark.parametrize("kind", LIMITS)
def test_a_claim_costs_the_same_however_much_stands_in_a_queue(store: SqliteStore, kind: str) -> None:
    settings, keys = LIMITS[kind]
    store.register(worker("w1", store.now()))
    set_queue(store, **settings)
    costs = []
    for number in (1_000, 20_000):
        if keys is None:
            fill(store, number, wake_at=1)
        else:
            keyed(store, number, min(keys, number // 10))
        with_logs(store)
        claim_steps(store)
        costs.append(min(claim_steps(store) for _ in range(3)))
    assert costs[1] < costs[0] * 1.5 + 300


def test_keys_that_sleep_are_stepped_over(store: SqliteStore) -> None:
    store.register(worker("w1", store.now()))
    set_queue(store, fair=1)
    costs = []
    for number in (50, 20_000):
        keyed(store, number, number, wake_at=NOT_DUE)
        create = Author(f"due-{number}", store.now()).create(partition_key=f"due-{number}")
        assert store.commit([create]) == [COMMITTED]
        costs.append(claim_steps(store))
        assert f"due-{number}" in store.owned("w1")
    assert costs[1] < costs[0] * 1.5 + 300
