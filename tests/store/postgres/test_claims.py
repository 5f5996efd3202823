"""A claim ends while another one is looking: what that one sees is from before, and it must not believe it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from perdure.errors import StoreUnavailable
from perdure.model.claim import ClaimRequest
from perdure.store.base import Store
from perdure.testing.author import Author, claims_for
from perdure.testing.conformance.contract import accept, claim, enlist
from tests.servers.fixtures import LONGEST_CLAIM_MS, Database

# Between the moment that a statement stands for and the rows that it locks there are microseconds. Here each key that
# it reads holds it up, if it locks runs and its connection is one of those that are to be held up.
HELD_UP = """
create table public.held_up (pid int);
create function public.is_free() returns boolean language plpgsql volatile as $$
begin
    if current_query() like '%skip locked%' and exists (select from public.held_up where pid = pg_backend_pid()) then
        perform pg_advisory_xact_lock_shared(4);
    end if;
    return true;
end $$;
alter table perdure.lane rename to keys;
create view perdure.lane with (security_barrier) as select * from perdure.keys where public.is_free();
"""


def test_a_run_with_a_key_that_is_claimed_as_another_claim_looks_is_left_alone(
    database: Database, open_more: Callable[[], Store], caplog: pytest.LogCaptureFixture
) -> None:
    looking = open_more()
    enlist(looking, "w1")
    assert claim(looking, "w1") == []  # its connections are there
    pids = database.server.backends(database.name)
    quick = open_more()
    enlist(quick, "w2")
    accept(quick, *(Author(f"run-{n}", quick.now()).create(partition_key=f"key-{n}") for n in range(3)))
    for statement in (HELD_UP, *(f"insert into public.held_up values ({pid})" for pid in pids)):
        database.execute(statement)
    with psycopg.connect(database.url, autocommit=True) as gate, ThreadPoolExecutor(1) as pool:
        gate.execute("select pg_advisory_lock(4)")
        with caplog.at_level(logging.ERROR, "perdure.store"):
            claiming = pool.submit(claim, looking, "w1")
            waiting = f"select count(*) from pg_stat_activity where wait_event = 'advisory' and pid = any(array{pids})"
            while database.execute(waiting) != [(1,)]:
                assert not claiming.done()
            assert [one.row.id for one in claim(quick, "w2", limit=1)] == ["run-0"]
            gate.execute("select pg_advisory_unlock(4)")
            assert [one.row.id for one in claiming.result(30)] == ["run-1", "run-2"]
    assert not caplog.records
    assert looking.owned("w1").keys() == {"run-1", "run-2"}


def test_a_claimer_that_falls_silent_is_put_out_after_two_seconds(
    database: Database, open_more: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its session end its locks. What it had begun to claim is another one's, and it has nothing of it."""
    monkeypatch.setattr("perdure.store.server.claim._LONGEST_MS", LONGEST_CLAIM_MS)
    silent, other = open_more(), open_more()
    enlist(silent, "w1")
    enlist(other, "w2")
    accept(other, *(Author(f"run-{n}", other.now()).create() for n in range(3)))
    limits: list[object] = []

    def fall_silent(*found: Any) -> Any:
        link = silent.inner._links._links["work"]  # type: ignore[attr-defined]
        limits.append(link.query("select current_setting('idle_in_transaction_session_timeout')", ()).rows[0][0])
        assert claim(other, "w2") == [], "it steps past what is locked"
        database.execute("select id from perdure.run for update")  # waits for the end of the locks
        limits.append([one.row.id for one in claim(other, "w2")])
        return claims_for("w1")(*found)

    with suppress(StoreUnavailable):
        claims = silent.claim(ClaimRequest("w1", ("default",), ("0 order",), 5), fall_silent)
        assert claims is not None
        assert not claims.taken
    assert limits[:2] == ["2s", ["run-0", "run-1", "run-2"]]
    assert silent.owned("w1") == {}
    assert other.owned("w2").keys() == {"run-0", "run-1", "run-2"}
