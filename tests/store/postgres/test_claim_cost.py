"""What a claim reads, counted by the server: it does not grow with what is not claimed."""

from __future__ import annotations

import pytest

from perdure.model.claim import ClaimRequest
from perdure.store.base import Store
from perdure.store.server import floors
from perdure.testing.author import claims_for, worker
from tests.servers.fixtures import Database

pytestmark = pytest.mark.timeout(60)
READ = (
    "select (select sum(coalesce(seq_tup_read, 0)) from pg_stat_user_tables)"
    " + (select sum(idx_tup_read) from pg_stat_user_indexes)"
)
FILL = """
insert into perdure.run (
    id, workflow, workflow_version, status, queue, priority, wake_at, epoch, inbox_n, input_digest, created_at,
    updated_at
)
select
    '{kind}-' || n, '{workflow}', 'v1', 'pending', '{queue}', n % 3, {wake_at}, 0, 0, 0, n, n
from generate_series({first}, {last}) as n
"""
LOG = """
insert into perdure.event (run_id, seq, type, attempt, at, epoch, commit_id, chain)
select id, 1, 'run_started', 0, 0, 0, 0, '\\x00' from perdure.run as r
where not exists (select 1 from perdure.event as e where e.run_id = r.id)
"""
KINDS = {
    "due": ("order", "default", 1),
    "sleeping": ("order", "default", 10**17),
    "foreign": ("unknown", "default", 1),
    "elsewhere": ("order", "other", 1),
}


@pytest.fixture
def store(store: Store) -> Store:
    store.register(worker("w1", store.now(), 600_000_000))
    return store


def fill(database: Database, first: int, last: int, *, analyzed: bool) -> None:
    """Make runs of every kind that a claim has to step over, and many that are due."""
    for kind, (workflow, queue, wake_at) in KINDS.items():
        database.execute(
            FILL.format(kind=kind, workflow=workflow, queue=queue, wake_at=wake_at, first=first, last=last)
        )
    database.execute(LOG)
    if analyzed:
        database.execute("analyze")


def reads(store: Store, database: Database) -> int:
    """Give how many rows and index entries were read so far."""
    with store.inner._opened().lend("work") as link:  # type: ignore[attr-defined]
        link.query("select pg_stat_force_next_flush()", ())
        link.query("select 1", ())
        return int(database.execute(READ)[0][0])


def claim_cost(store: Store, database: Database, count: int = 5) -> int:
    """Claim, and give how many rows and index entries were read for it."""
    before = reads(store, database)
    claimed = store.claim(ClaimRequest("w1", ("default",), ("0 order",), count, take_over=True), claims_for("w1"))
    assert claimed is not None
    assert len(claimed.taken) == count
    return reads(store, database) - before


@pytest.mark.parametrize("analyzed", [True, False])
def test_what_is_not_claimed_costs_nothing(store: Store, database: Database, analyzed: bool) -> None:
    fill(database, 1, 1_000, analyzed=analyzed)
    few = min(claim_cost(store, database) for _ in range(3))
    fill(database, 1_001, 8_000, analyzed=analyzed)
    many = min(claim_cost(store, database) for _ in range(3))
    assert many <= few * 1.5 + 300, (few, many)


def test_a_claim_reads_little_more_than_it_takes(store: Store, database: Database) -> None:
    fill(database, 1, 5_000, analyzed=True)
    claim_cost(store, database)
    assert claim_cost(store, database, 50) < 50 * 40


@pytest.mark.parametrize("analyzed", [True, False])
def test_a_look_for_needed_code_reads_no_more_where_more_runs_wait(
    store: Store, database: Database, analyzed: bool
) -> None:
    """Every worker takes one every few seconds, whether it has anything to do or not."""
    fill(database, 1, 8_000, analyzed=analyzed)
    before = reads(store, database)
    found = store.catalog.demand(("default", "other", "empty"), store.now())
    assert found.due.keys() == {"0 order", "0 unknown"}
    assert reads(store, database) - before < 300


def test_what_is_not_claimed_costs_nothing_where_runs_have_keys(store: Store, database: Database) -> None:
    """The table is never read as a whole to find the first run of a key."""

    def fill_keyed(first: int, last: int) -> None:
        for kind, (workflow, queue, wake_at) in KINDS.items():
            filled = FILL.format(kind=kind, workflow=workflow, queue=queue, wake_at=wake_at, first=first, last=last)
            key = "case when n % 2 = 0 then 'k' || n % 20 end"
            database.execute(
                filled.replace("updated_at\n)", "updated_at, partition_key\n)").replace("n, n\n", f"n, n, {key}\n")
            )
        database.execute(LOG)
        database.execute("analyze")

    fill_keyed(1, 1_000)
    few = min(claim_cost(store, database) for _ in range(3))
    fill_keyed(1_001, 8_000)
    many = min(claim_cost(store, database) for _ in range(3))
    assert many <= few * 1.5 + 300, (few, many)


def test_dead_entries_are_read_once_and_then_left_aside(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside an old snapshot the entries of what was claimed stay, in front of what is due."""
    database.execute(FILL.format(kind="gone", workflow="order", queue="default", wake_at=0, first=1, last=6_000))
    with database.old_snapshot():
        database.execute("update perdure.run set status = 'completed', wake_at = null")
        fill(database, 6_001, 6_100, analyzed=True)
        cost = min(claim_cost(store, database) for _ in range(3))
        monkeypatch.setattr(floors, "COSTLY_US", -1)
        later = min(claim_cost(store, database) for _ in range(floors.IN_A_ROW + 2))
    assert 6_000 <= cost <= 6_000 * 1.1 + 600, cost
    assert later < 1_000, later
