"""How an attempt can end besides its result: trouble of the process, a lease in doubt, time that is up, a worker that
stops. What is recorded tells of the step, never of the process."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import perdure
from perdure.model.status import EventType
from perdure.runtime.lease import boot_time

CALLS: list[Any] = []
GO = threading.Event()


@pytest.fixture(autouse=True)
def afresh() -> None:
    CALLS.clear()
    GO.clear()


def types(log: list[perdure.Event]) -> list[str]:
    return [event.type for event in log]


async def until(wanted: Any) -> None:
    async with asyncio.timeout(40):
        while not wanted():
            await asyncio.sleep(0.002)


@perdure.step
async def runs_out_of_memory() -> int:
    CALLS.append("async")
    if len(CALLS) == 1:
        raise MemoryError
    return len(CALLS)


@perdure.step
def runs_out_of_memory_on_a_thread() -> int:
    CALLS.append("sync")
    if len(CALLS) == 1:
        raise MemoryError
    return len(CALLS)


@perdure.workflow
async def short_of_memory(sync: bool) -> int:
    return await (runs_out_of_memory_on_a_thread.aio() if sync else runs_out_of_memory())


@pytest.mark.parametrize("sync", [True, False])
async def test_trouble_of_the_process_is_no_failure_of_the_step(tmp_db: str, sync: bool) -> None:
    async with perdure.Engine(tmp_db, [short_of_memory], poll="20ms") as engine:
        handle = await engine.start(short_of_memory, sync)
        assert await handle.result("10s") == 2
        log = await handle.history()
    assert EventType.STEP_ATTEMPT_FAILED not in types(log)
    assert EventType.STEP_FAILED not in types(log)
    (released,) = [event for event in log if event.type == EventType.RUN_RELEASED]
    assert "MemoryError in step" in released.detail["reason"]


@perdure.step
def ready() -> None:
    CALLS.append("ready")
    GO.wait(10)


@perdure.step
async def has_effects() -> str:
    CALLS.append("effect")
    return "done"


@perdure.workflow
async def in_doubt(patience: float) -> str:
    await ready.aio()
    try:
        return await asyncio.wait_for(has_effects(), patience)
    except TimeoutError:
        return "gave up"


class Doubt:
    """An engine whose heartbeats go unanswered until told."""

    def __init__(self, engine: perdure.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        worker: Any = engine._worker
        self.lease = worker.lease
        self.host = worker.host
        store: Any = engine._store
        self._heartbeat = store.heartbeat
        self._answers = False
        monkeypatch.setattr(store, "heartbeat", self.heartbeat)
        self.lease.deadline = 0.0

    def heartbeat(self, *args: Any) -> Any:
        if not self._answers:
            raise perdure.StoreUnavailable("no answer")
        return self._heartbeat(*args)

    def end(self) -> None:
        self._answers = True


async def test_no_effect_begins_while_the_lease_is_in_doubt(tmp_db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with perdure.Engine(tmp_db, [in_doubt], lease="1s") as engine:
        handle = await engine.start(in_doubt, 60.0)
        await until(lambda: CALLS == ["ready"])
        doubt = Doubt(engine, monkeypatch)
        GO.set()
        await until(lambda: doubt.host._blocked)
        assert CALLS == ["ready"]
        doubt.end()
        assert await handle.result("10s") == "done"
    assert CALLS == ["ready", "effect"]


async def test_an_effect_nobody_waits_for_any_more_does_not_begin_later(
    tmp_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with perdure.Engine(tmp_db, [in_doubt], lease="30s") as engine:
        handle = await engine.start(in_doubt, 0.05)
        await until(lambda: CALLS == ["ready"])
        doubt = Doubt(engine, monkeypatch)
        GO.set()
        assert await handle.result("10s") == "gave up"
        doubt.end()
        doubt.lease.granted(boot_time())
        doubt.host.lease_extended()
    assert CALLS == ["ready"]


async def test_an_effect_that_waits_for_the_lease_does_not_outlive_its_worker(
    tmp_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with perdure.Engine(tmp_db, [in_doubt], lease="30s", grace=0) as engine:
        handle = await engine.start(in_doubt, 60.0)
        await until(lambda: CALLS == ["ready"])
        doubt = Doubt(engine, monkeypatch)
        GO.set()
        await until(lambda: doubt.host._blocked)
        doubt.end()
    doubt.lease.granted(boot_time())
    doubt.host.lease_extended()
    assert CALLS == ["ready"]
    async with perdure.Engine(tmp_db, [in_doubt], poll="20ms") as engine:
        assert await engine.get(handle.id).result("10s") == "done"


@perdure.step(timeout="50ms", retry=perdure.Retry(attempts=2, initial="1ms", jitter=False))
def stuck() -> str:
    attempt = perdure.step_info().attempt
    CALLS.append(f"begin {attempt}")
    if attempt == 1:
        perdure.step_info().heartbeat("early")
        GO.wait(10)
        perdure.step_info().heartbeat("late")
    CALLS.append(f"end {attempt}")
    return f"attempt {attempt}"


@perdure.workflow
async def waits_for_the_stuck() -> str:
    return await stuck.aio()


async def test_a_second_attempt_never_overlaps_a_thread_that_has_not_ended(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [waits_for_the_stuck]) as engine:
        handle = await engine.start(waits_for_the_stuck)
        worker: Any = engine._worker
        await until(lambda: worker.host.runs[handle.id].attempts.waiting)
        assert CALLS == ["begin 1"]
        GO.set()
        assert await handle.result("10s") == "attempt 2"
        log = await handle.history()
    assert CALLS == ["begin 1", "end 1", "begin 2", "end 2"]
    assert [event.type for event in log if event.kind == "step"] == [
        EventType.STEP_HEARTBEAT, EventType.STEP_ATTEMPT_FAILED, EventType.STEP_COMPLETED
    ]  # fmt: skip


@perdure.step(timeout="20ms")
def too_long() -> None:
    GO.wait(10)
    CALLS.append("ended")


@perdure.workflow
async def goes_on_without() -> str:
    try:
        await too_long.aio()
    except perdure.StepTimedOut as error:
        return f"{error.step} took too long"
    return "in time"


async def test_a_run_goes_on_at_once_but_ends_after_its_threads(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [goes_on_without]) as engine:
        handle = await engine.start(goes_on_without)
        worker: Any = engine._worker
        await until(lambda: handle.id in worker.host.runs and worker.host.runs[handle.id].execution.outcome)
        assert (await handle.status()) == "running"
        GO.set()
        assert await handle.result("10s") == "too_long took too long"
    assert CALLS == ["ended"]


@perdure.step
async def says_nothing_about_itself() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    raise Mute


@perdure.workflow
async def meets_the_mute() -> None:
    await says_nothing_about_itself()


async def test_an_error_whose_text_cannot_be_read_is_recorded_all_the_same(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [meets_the_mute]) as engine:
        handle = await engine.start(meets_the_mute)
        with pytest.raises(perdure.RunFailed, match="Mute"):
            await handle.result("10s")


@perdure.workflow
async def stops_itself(how: str) -> Any:
    await has_effects()
    if how == "cancelled":
        raise asyncio.CancelledError
    if how == "mute":
        raise Unreadable
    if how == "base":
        raise BaseError("not an Exception")
    if how == "object":
        return object()
    return None


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


class BaseError(BaseException):
    pass


@pytest.mark.parametrize(
    "how, text",
    [
        ("cancelled", "although nobody had cancelled it"),
        ("mute", "Unreadable"),
        ("base", "ended with BaseError: not an Exception"),
        ("object", "the result of workflow 'stops_itself' cannot be stored"),
    ],
)
async def test_however_a_body_ends_its_run_ends(tmp_db: str, how: str, text: str) -> None:
    async with perdure.Engine(tmp_db, [stops_itself]) as engine:
        handle = await engine.start(stops_itself, how)
        with pytest.raises(perdure.RunFailed, match=text):
            await handle.result("10s")
        assert await handle.status() == "failed"
