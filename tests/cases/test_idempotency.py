"""Real complaints about idempotency: one id, one run, whoever asks and how often."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import perdure
from perdure import IdConflict, StoreUnavailable
from perdure.cli import main
from perdure.store.instrumented import Instrumented
from tests.cases import flows
from tests.cases.backends import everywhere
from tests.cases.conftest import World


@everywhere
async def test_case_ide_01(world: World) -> None:
    """The same id started concurrently runs twice: idempotent only after the first run has ended.

    Twenty concurrent starts of one id: tasks, threads and four processes. One execution; everybody gets the same run
    and the same result. Source: dbos-inc/dbos-transact-py#544, dbos-inc/dbos-transact-java#226.
    """
    go = world.folder / "flag-barrier"
    same = [["k", "long_async", {"seconds": 0.5}]]
    others = [world.worker(f"P{n}", client=True, start=same, barrier=str(go)) for n in range(4)]

    def from_thread(_: int) -> tuple[str, str]:
        with perdure.SyncEngine(world.url, [flows], worker=False) as engine:
            run = engine.start("long_async", seconds=0.5, id="k")
            return run.id, run.result(timeout=30)

    async with world.engine() as engine, world.client() as client:

        async def from_task(through: perdure.Engine) -> tuple[str, str]:
            run = await through.start(flows.long_async, 0.5, id="k")
            return run.id, await run.result(timeout=30)

        with ThreadPoolExecutor(4) as pool:
            go.touch()
            threads = [asyncio.get_running_loop().run_in_executor(pool, from_thread, n) for n in range(4)]
            found = await asyncio.gather(*threads, *(from_task(engine if n % 2 else client) for n in range(12)))
    assert found == [("k", "a")] * 16
    assert [child.finish().code for child in others] == [0] * 4
    assert world.ledger.count("wait_async") == 1


@everywhere
async def test_case_ide_05(world: World) -> None:
    """The same key with another request gets the old answer silently, or blocks every later request.

    Another payload is a conflict that carries the run's id, and nothing runs; the first payload still attaches.
    Source: simstudioai/sim PR#5908.
    """
    async with world.engine() as engine:
        assert await engine.run(flows.trivial, 1, id="k") == 1
        with pytest.raises(IdConflict) as caught:
            await engine.start(flows.trivial, 2, id="k")
        assert caught.value.run_id == "k"
        with pytest.raises(IdConflict):
            await engine.start(flows.two_steps, id="k")
        assert await engine.run(flows.trivial, 1, id="k") == 1
        assert await engine.run(flows.trivial, n=1, id="k") == 1
    assert world.ledger.count() == 1


@everywhere
async def test_case_ide_06(world: World) -> None:
    """A client that retries a start after a lost reply is refused, although the first one worked.

    The process is killed after the start was stored; the reply of a commit is lost; the caller gives up. Each time the
    same start again, while the run goes on and after it, returns the same run. Source: restatedev/restate#5128.
    """
    killed = world.worker("client", client=True, start=[["k", "nap", {"seconds": 0.5}]], fault="kill after run_started")
    assert killed.finish().code == -9
    async with world.engine() as engine, world.client() as client:
        run = await client.start(flows.nap, 0.5, id="k")
        assert await run.result(timeout=30) == "rested"
        assert await (await client.start(flows.nap, 0.5, id="k")).result() == "rested"
        lose_replies(client._store)
        lost = await client.start(flows.nap, 0.2, id="lost")
        giving_up = asyncio.create_task(client.start(flows.nap, 0.2, id="given up"))
        await asyncio.sleep(0)
        giving_up.cancel()
        again = await client.start(flows.nap, 0.2, id="given up")
        assert await lost.result(timeout=30) == await again.result(timeout=30) == "rested"
        assert await engine.run(flows.nap, 0.2, id="lost") == "rested"
    assert world.ledger.counts("first") == {"k": 1, "lost": 1, "given up": 1}


def lose_replies(store: Any) -> None:
    """Lose every second reply: what was committed is reported as unknown."""
    assert isinstance(store, Instrumented)
    commit, count = store.commit, itertools.count()

    def losing(batch: Sequence[Any], *, block: bool = True) -> Any:
        answer = commit(batch, block=block)
        if answer is not None and next(count) % 2 == 0:
            raise StoreUnavailable("the connection was closed", unknown=True)
        return answer

    store.commit = losing  # type: ignore[method-assign]
    store.send = lambda _: None  # type: ignore[method-assign, assignment]  # so that every write comes by here


@everywhere
async def test_case_ide_12(world: World) -> None:
    """A key is held for ever by a dead run: no new run with it is accepted.

    The worker of a run is killed; a start with its id attaches, and so does one with its deduplication key, and the run
    is resumed. Then the key is free. The id is not, and no purge sets it free by accident. Source: oban-bg/oban#424.
    """
    async with world.client() as client:
        await client.start(flows.named, id="k", deduplication_key="k")
        dead = world.worker("W1")
        await world.ledger.until("who")
        dead.destroy()
        async with world.engine() as engine:
            assert (await client.start(flows.named, deduplication_key="k")).id == "k"
            assert await (await client.start(flows.named, id="k", deduplication_key="k")).result(timeout=30) == [
                "test",
                "done",
            ]
            after = await client.start(flows.named, id="after", deduplication_key="k")
            assert after.is_new
            assert await after.result(timeout=30) == ["test", "done"]
            await engine.purge("k")
            with pytest.raises(perdure.RunNotFound):
                await engine.run(flows.named, id="k")
    assert world.ledger.counts("second") == {"k": 1, "after": 1}


@everywhere
async def test_case_ide_12_parked(world: World) -> None:
    """A run that kills its workers is parked, and that is no end: it keeps its key until a person lets it go.

    Whoever starts another meanwhile is given this run, and so can see what it waits for.
    """
    async with world.client() as client:
        deadly = await client.start(flows.deadly, 99, deduplication_key="k")
        assert world.worker("W1").finish().code == -9
        async with world.engine(max_deaths=1):
            with pytest.raises(perdure.RunParked, match="1 worker"):
                await deadly.result(timeout=30)
            again = await client.start(flows.trivial, 1, deduplication_key="k")
            assert (again.id, await again.status()) == (deadly.id, perdure.Status.PARKED)
            await deadly.cancel()
            with pytest.raises(perdure.RunCancelled):
                await deadly.result(timeout=30)
            assert await (await client.start(flows.trivial, 1, deduplication_key="k")).result(timeout=30) == 1


OPTIONS: dict[str, list[Any]] = {
    "queue": ["default", "", "q" * 300, 7],
    "priority": [3, 2**40, "high", True],
    "delay": [0.01, "10ms", -1, "soon"],
    "timeout": ["1h", 0, -5],
    "tags": [{"k": "v"}, {"": "v"}, {"k": 1}],
    "partition_key": ["k", "", "k" * 201, 7],
    "deduplication_key": ["given", "", "k" * 256, 7],
    "id": ["given", "", "a\x00b", 5],
}


PAIRS = [
    {one: left, other: right}
    for one, other in itertools.combinations(OPTIONS, 2)
    for left in OPTIONS[one]
    for right in OPTIONS[other]
]


def fresh(options: dict[str, Any], where: str) -> dict[str, Any]:
    """Give options with an id and a key of their own in place of any that is given."""
    new = f"{where}-{PAIRS.index(options)}"
    return {name: new if value == "given" else value for name, value in options.items()}


@everywhere
async def test_case_ide_14(world: World) -> None:
    """A combination of options is rejected by one entry point and silently accepted by another.

    Every pair of options, right and wrong, through the engine with a worker, a client, and the blocking engine: the
    same acceptance or the same error. (HTTP, which will use the same call, comes later.)
    Source: dbos-inc/dbos-transact-ts#1350.
    """

    async def outcome(engine: perdure.Engine, options: dict[str, Any], where: str) -> str:
        try:
            await engine.start(flows.trivial, 1, **fresh(options, where))
        except Exception as error:
            return type(error).__name__
        return "accepted"

    def blocking() -> list[str]:
        found = []
        with perdure.SyncEngine(world.url, [flows], worker=False) as engine:
            for options in PAIRS:
                try:
                    engine.start(flows.trivial, 1, **fresh(options, "s"))
                    found.append("accepted")
                except Exception as error:
                    found.append(type(error).__name__)
        return found

    async with world.engine() as engine, world.client() as client:
        through_worker = [await outcome(engine, options, "w") for options in PAIRS]
        through_client = [await outcome(client, options, "c") for options in PAIRS]
        through_thread = await asyncio.to_thread(blocking)
    assert through_worker == through_client == through_thread
    assert set(through_worker) == {"accepted", "InvalidValue", "UsageError"}


def words(options: dict[str, Any]) -> list[str]:
    """Give the words of a command that mean options; the name of a tag as often as it has tags."""
    found = []
    for name, value in options.items():
        option = {"tags": "tag"}.get(name, name).replace("_", "-")
        given = [f"{key}={one}" for key, one in value.items()] if isinstance(value, dict) else [str(value)]
        found += [f"--{option}={one}" for one in given]
    return found


def is_text(options: dict[str, Any]) -> bool:
    """Whether a command can be given these: what is of a wrong type is a text there."""
    kinds = {"priority": int, "delay": float | int | str, "timeout": int | str, "tags": dict}
    right = all(type(value) is not bool and isinstance(value, kinds.get(name, str)) for name, value in options.items())
    return right and "a\x00b" not in options.values() and {"k": 1} not in options.values()


@everywhere
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.nightly)])
def test_case_ide_14_commands(world: World, capsys: pytest.CaptureFixture[str], every: int) -> None:
    """`perdure start` accepts and refuses the same pairs of options, as far as they can be typed, as `start` does."""
    pairs = [options for options in PAIRS if is_text(options)][::every]
    assert len(pairs) > 20
    with perdure.SyncEngine(world.url, [flows], worker=False) as engine:
        for options in pairs:
            code = main.run(["start", "trivial", "--db", world.url, "--arg=n=1", *words(fresh(options, "cli"))])
            told = capsys.readouterr()
            try:
                engine.start("trivial", n=1, **fresh(options, "lib"))
            except perdure.UsageError:
                assert (code, told.out) == (2, ""), options
            else:
                assert code == 0, (options, told.err)
