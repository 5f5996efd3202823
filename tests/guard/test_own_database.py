"""Transactional steps in the engine's own database: the effect and the record are one transaction, under the fence."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

import perdure
from perdure import RunFailed
from perdure.verify.database import verify
from tests.guard.own_till import (
    ACTS,
    CALLS,
    app,
    dialect_of,
    every,
    flow,
    ledger,
    plain,
    prepare,
    tables,
    take,
    take_async,
    taken,
    types,
)
from tests.guard.test_transactional import ASYNC, KIND, WHERE, write
from tests.servers import fixtures
from tests.servers.fixtures import Servers


@pytest.fixture
def database(kind: str, new_database: Callable[[str], fixtures.Database]) -> Iterator[fixtures.Database]:
    """Give the database of the engine and of the application."""
    database = new_database("mariadb" if dialect_of(kind) == "mysql" else "postgres")
    prepare(database, kind)
    yield database
    assert verify(database.url).findings == []


@every
async def test_the_writes_and_the_record_are_one_transaction(database: fixtures.Database) -> None:
    async with perdure.Engine(database.url, [flow]) as engine:
        assert await engine.run(flow, "teapot", id="run-1") == "teapot 1"
        assert await types(engine, "run-1") == ["run_started", "run_claimed", "step_completed", "run_completed"]
    assert ledger(database) == ["teapot"]
    assert "perdure_guard" not in tables(database)
    (found,) = app.known.values()
    assert found.tables is not None


@every
async def test_a_step_that_raises_leaves_nothing(database: fixtures.Database) -> None:
    async def failing(_: Any) -> None:
        raise ZeroDivisionError

    def fail(_: Any) -> None:
        raise ZeroDivisionError

    ACTS[:] = [failing if KIND[0] in ASYNC else fail]
    async with perdure.Engine(database.url, [flow]) as engine:
        with pytest.raises(RunFailed, match="ZeroDivisionError"):
            await engine.run(flow, "teapot", id="run-1")
    assert ledger(database) == []


@plain
async def test_a_step_costs_one_commit(database: fixtures.Database, servers: Servers) -> None:
    """Two addresses, one database: the server is asked, not the URL."""
    steps = 40
    own, apart = servers.proxy(database.server), servers.proxy(database.server)
    WHERE[:] = [WHERE[0]._replace(port=apart.port)]

    @perdure.workflow(name="many", unversioned=True)
    async def many() -> None:
        for number in range(steps):
            await taken(str(number))

    async with perdure.Engine(database.server.url(database.name, port=own.port), [many]) as engine:
        await engine.run(many)
    commits = own.statements["commit"] + own.statements["insert"]
    print(f"{steps} steps: {apart.statements['commit']} commits of steps, {commits} of the engine")
    assert apart.statements["commit"] == steps
    assert commits < steps / 2
    assert len(ledger(database)) == steps


@every
@pytest.mark.parametrize("what", ["commit", "rollback"])
async def test_it_cannot_end_its_own_transaction(database: fixtures.Database, what: str) -> None:
    ACTS[:] = [lambda connection: getattr(connection, what)()]
    async with perdure.Engine(database.url, [flow]) as engine:
        with pytest.raises(RunFailed, match=r"would end the transaction|atomic"):
            await engine.run(flow, "teapot")
    assert ledger(database) == []


@pytest.mark.parametrize("kind", ["psycopg", "psycopg-async", "sqlalchemy-postgresql", "django-postgresql"])
async def test_a_commit_sent_as_text_to_postgresql_is_told_and_not_done_again(database: fixtures.Database) -> None:
    @perdure.step(name="patient", mode="transaction", database=app, retry=perdure.Retry(attempts=5, initial="1ms"))
    def patient() -> None:
        CALLS.append("")
        write(app.connection, "commit")

    @perdure.step(name="patient_async", mode="transaction", database=app, retry=perdure.Retry(attempts=5))
    async def patient_async() -> None:
        CALLS.append("")
        await write(app.connection, "commit")

    @perdure.workflow(name="committing")
    async def committing() -> None:
        await (patient_async() if KIND[0] in ASYNC else patient.aio())

    async with perdure.Engine(database.url, [committing]) as engine:
        with pytest.raises(RunFailed, match="not the one it was begun in"):
            await engine.run(committing)
    assert len(CALLS) == 1


@pytest.mark.parametrize("kind", ["pymysql", "sqlalchemy-mysql", "django-mysql", "sqlalchemy-async-mysql"])
@pytest.mark.parametrize("text", ["create table other (x int)", "truncate ledger", "commit", "set autocommit = 1"])
async def test_what_commits_on_mysql_is_refused(database: fixtures.Database, text: str) -> None:
    ACTS[:] = [lambda connection: write(connection, text)]
    async with perdure.Engine(database.url, [flow]) as engine:
        with pytest.raises(RunFailed, match="would end the transaction"):
            await engine.run(flow, "teapot")
    assert ledger(database) == []


@plain
async def test_a_transaction_inside_it_is_refused(database: fixtures.Database) -> None:
    def nested(_: Any) -> None:
        with app.transaction():
            pass

    ACTS[:] = [nested]
    async with perdure.Engine(database.url, [flow]) as engine:
        with pytest.raises(RunFailed, match="inside another one"):
            await engine.run(flow, "teapot")
    assert ledger(database) == []


@perdure.workflow(name="receipt")
async def receipt(what: str) -> str:
    return f"receipt for {what}"


@plain
@pytest.mark.parametrize("raises", [False, True])
async def test_a_run_can_be_started_with_it(database: fixtures.Database, raises: bool) -> None:
    with perdure.SyncEngine(database.url, [receipt], worker=False) as starter:

        def start(connection: Any) -> None:
            starter.start_in(connection, receipt, "teapot", id="receipt-1")
            if raises:
                raise ZeroDivisionError

        ACTS[:] = [start]
        async with perdure.Engine(database.url, [flow, receipt], poll="50ms") as engine:
            if raises:
                with pytest.raises(RunFailed):
                    await engine.run(flow, "teapot")
                assert [info async for info in engine.list(workflow="receipt")] == []
            else:
                await engine.run(flow, "teapot")
                assert await engine.get("receipt-1").result() == "receipt for teapot"


@pytest.mark.parametrize("where", ["before", "after", "mid-reply"])
@pytest.mark.parametrize(
    "kind", ["psycopg", "psycopg-async", "pymysql", "sqlalchemy-postgresql", "sqlalchemy-async-mysql", "django-mysql"]
)
async def test_a_commit_whose_answer_is_lost_is_looked_up(
    database: fixtures.Database, servers: Servers, where: Any
) -> None:
    proxy = servers.proxy(database.server)
    again = perdure.Retry(attempts=2, initial="1ms")

    @perdure.step(name="retried", mode="transaction", database=app, retry=again)
    def retried() -> str:
        return take("teapot")

    @perdure.step(name="retried_async", mode="transaction", database=app, retry=again)
    async def retried_async() -> str:
        return await take_async("teapot")

    @perdure.workflow(name="lost")
    async def lost() -> str:
        return await (retried_async() if KIND[0] in ASYNC else retried.aio())

    async with perdure.Engine(database.url, [lost]) as engine:
        WHERE[:] = [WHERE[0]._replace(port=proxy.port)]
        proxy.on_commit(where, touching="ledger")
        result = await engine.run(lost, id="run-1")
        events = await types(engine, "run-1")
    assert proxy.cuts == 1
    assert result == f"teapot {1 + (where == 'before')}"
    assert ("step_attempt_failed" in events) is (where == "before")
    assert events.count("step_completed") == events.count("run_claimed") == 1
    assert ledger(database) == ["teapot"]


@perdure.step
async def small(number: int) -> int:
    return number


@plain
async def test_the_log_does_not_wait_for_the_function(database: fixtures.Database) -> None:
    may_end = threading.Event()
    ACTS[:] = [lambda _: may_end.wait(10)]

    @perdure.workflow(name="beside")
    async def beside() -> list[str]:
        slow = [asyncio.create_task(taken(what)) for what in ("teapot", "kettle")]
        for number in range(20):
            await small(number)
        may_end.set()
        return sorted([(await one).split()[0] for one in slow])

    async with perdure.Engine(database.url, [beside]) as engine:
        assert await engine.run(beside, id="run-1") == ["kettle", "teapot"]
        events = await types(engine, "run-1")
    assert events.count("step_completed") == 22
    assert sorted(ledger(database)) == ["kettle", "teapot"]


REFUSING = """
create sequence refusals;
create function refuse() returns trigger language plpgsql as $$
begin
    perform pg_sleep(0.2);
    if nextval('refusals') <= {times} then
        raise exception 'not yet' using errcode = '{code}';
    end if;
    return null;
end $$;
create constraint trigger late after insert on ledger deferrable initially deferred
for each row execute function refuse();
"""


@pytest.mark.parametrize("kind", ["psycopg", "psycopg-async"])
@pytest.mark.parametrize("code, ends", [("23514", "failed"), ("40001", "completed")])
async def test_what_waits_behind_a_commit_that_fails_goes_on(database: fixtures.Database, code: str, ends: str) -> None:
    """While the commit is under way, plain steps end: their places are behind one that nobody fills as was planned.

    A serialization failure at the end is no matter of the step's: it is done again without a retry policy.
    """
    database.execute(REFUSING.format(times=2, code=code))

    @perdure.workflow(name="behind")
    async def behind() -> tuple[str, list[int]]:
        first = asyncio.create_task(taken("teapot"))

        async def many() -> int:
            number = 0
            while not first.done():
                number = await small(number + 1)
            return number

        counts = await asyncio.gather(*(many() for _ in range(3)))
        return "failed" if first.exception() else "completed", counts

    async with perdure.Engine(database.url, [behind]) as engine:
        outcome, counts = await engine.run(behind, id="run-1")
        events = await types(engine, "run-1")
    failure = "step_attempt_failed" if ends == "completed" else "step_failed"
    assert outcome == ends
    assert events.count("run_claimed") == 1
    assert events.count(failure) == (2 if ends == "completed" else 1)
    assert events.count("step_completed") == sum(counts) + (ends == "completed")
    assert "step_completed" in events[events.index(failure) :]
    assert ledger(database) == ["teapot"] * (ends == "completed")


HOLDING = """
create function hold() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock(77);
    return null;
end $$;
create constraint trigger held after insert on ledger deferrable initially deferred
for each row execute function hold();
"""


@contextmanager
def held_commits(database: fixtures.Database) -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
    """Hold commits of steps up; give what waits for one."""
    database.execute(HOLDING)
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and objid = 77 and not granted"

    async def one() -> None:
        while await asyncio.to_thread(database.execute, waiting) == [(0,)]:
            pass

    with closing(psycopg.connect(WHERE[0].postgresql(), autocommit=True)) as holder:
        holder.execute("select pg_advisory_lock(77)")
        yield one


@pytest.mark.parametrize("kind", ["psycopg", "psycopg-async"])
async def test_a_cancel_while_the_commit_is_under_way_comes_too_late(database: fixtures.Database) -> None:
    async with perdure.Engine(database.url, [flow], hint=0.01, poll="50ms") as engine:
        with held_commits(database) as one:
            run = await engine.start(flow, "teapot", id="run-1")
            await one()
            await run.cancel()
        assert await run.result() == "teapot 1"
        events = await types(engine, "run-1")
    assert ledger(database) == ["teapot"]
    assert "step_cancelled" not in events


@pytest.mark.parametrize("kind", ["psycopg", "psycopg-async"])
async def test_a_step_times_out_before_its_commit_and_not_in_it(database: fixtures.Database) -> None:
    slow = threading.Event()
    ended = asyncio.Event()

    @perdure.step(name="limited", mode="transaction", database=app, timeout="1s")
    def limited(waits: bool) -> str:
        slow.wait(10 if waits else 0)
        return take("teapot")

    @perdure.step(name="limited_async", mode="transaction", database=app, timeout="1s")
    async def limited_async(waits: bool) -> str:
        await (asyncio.wait_for(ended.wait(), 10) if waits else asyncio.sleep(0))
        return await take_async("teapot")

    @perdure.workflow(name="timed")
    async def timed(waits: bool) -> str:
        return await (limited_async(waits) if KIND[0] in ASYNC else limited.aio(waits))

    async with perdure.Engine(database.url, [timed]) as engine:
        with pytest.raises(RunFailed, match="timed out"):
            await engine.run(timed, True)
        slow.set()
        assert ledger(database) == []
        with held_commits(database) as one:
            run = await engine.start(timed, False)
            await one()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ended.wait(), 1.2)
        assert (await run.result()).startswith("teapot")
    assert ledger(database) == ["teapot"]


@pytest.mark.parametrize("kind", ["psycopg", "psycopg-async"])
async def test_a_worker_that_stops_meanwhile_leaves_nothing_half_done(database: fixtures.Database) -> None:
    database.execute(REFUSING.format(times=1, code="23514"))
    begun = threading.Event()

    async def begin_async(_: Any) -> None:
        begun.set()

    ACTS[:] = [begin_async if KIND[0] in ASYNC else lambda _: begun.set()]
    async with perdure.Engine(database.url, [flow], grace=0) as engine:
        await engine.start(flow, "teapot", id="run-1")
        await asyncio.to_thread(begun.wait, 10)
    async with perdure.Engine(database.url, [flow], poll="50ms") as engine:
        with pytest.raises(RunFailed, match="not yet"):
            await asyncio.wait_for(engine.get("run-1").result(), 10)
    assert ledger(database) == []
