"""`Engine.check`: runs of a database against the code that is registered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.replay.verdict import VerdictKind as Kind
from perdure.testing import replay
from tests.replay import shop

EVERY: list[perdure.Workflow[..., Any]] = [shop.order, shop.sync_order]


async def test_a_run_is_checked_while_it_waits_and_when_it_has_ended(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, EVERY) as engine:
        run = await engine.start(shop.order, "tea", pause=30.0, id="o-1")
        await until_it_sleeps(run)
        told = await engine.check("o-1")
        assert (told.kind, told.next) == (Kind.SAFE, "timer 'sleep' (1)")
        await run.cancel()
        with pytest.raises(perdure.RunCancelled):
            await run.result(timeout="5s")
        assert str(await engine.check("o-1", processes=1)) == "o-1 (order): SAFE: next: the run is cancelled"
        await engine.run(shop.sync_order, "tea", id="o-2")
        assert (await engine.check("o-2", processes=0)).is_safe


async def until_it_sleeps(run: perdure.Run[str]) -> None:
    while not any(event.type == "step_completed" for event in await run.history()):
        await asyncio.sleep(0)


async def test_changed_code_is_found_by_a_client_that_only_reads(tmp_db: str, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    async with perdure.Engine(tmp_db, EVERY) as engine:
        await engine.run(shop.order, str(ledger), id="o-1")
        await engine.run(shop.sync_order, str(ledger), id="o-2")
        for run_id in ("o-1", "o-2"):
            assert (await engine.check(run_id)).is_safe
    async with perdure.Engine(tmp_db, [shop.order_with_check], worker=False, read_only=True) as client:
        told = await client.check("o-1")
        assert (told.kind, told.at) == (Kind.DIVERGES, "0")
        assert told.found == "the code asks for step 'look_at'"
        recording = await client.get("o-1").recording()
        assert replay(recording, shop.order).is_safe
    assert ledger.read_text() == "taken\nsent\n" * 2


async def test_what_cannot_be_checked_is_refused(tmp_db: str) -> None:
    @perdure.workflow(name="order")
    async def local(item: str, pause: float = 0.0) -> str:
        return item + str(pause)

    async with perdure.Engine(tmp_db, EVERY) as engine:
        await engine.run(shop.order, "tea", id="o-1")
        with pytest.raises(perdure.RunNotFound):
            await engine.check("nothing")
        with pytest.raises(perdure.VersionError, match="order has no version 9"):
            await engine.check("o-1", to="9")
        assert (await engine.check("o-1", to="0.0.0", processes=0)).is_safe
        with pytest.raises(perdure.InvalidValue, match="from 0 to 16"):
            await engine.check("o-1", processes=-1)
    async with perdure.Engine(tmp_db, [shop.sync_order], worker=False) as client:
        with pytest.raises(perdure.UsageError, match="of workflow 'order', whose code is not here"):
            await client.check("o-1")
    async with perdure.Engine(tmp_db, [local], worker=False) as client:
        with pytest.raises(perdure.UsageError, match="no other process finds it"):
            await client.check("o-1")
        assert (await client.check("o-1", processes=0)).kind is Kind.DIVERGES


async def test_an_engine_that_was_closed_checks_again_when_it_is_open(tmp_db: str) -> None:
    engine = perdure.Engine(tmp_db, EVERY)
    for _ in range(2):
        async with engine:
            await engine.run(shop.order, "tea", id="o-1")
            assert (await engine.check("o-1")).is_safe


def test_a_sync_engine_checks_too(tmp_db: str) -> None:
    with perdure.SyncEngine(tmp_db, EVERY) as engine:
        run = engine.start(shop.order, "tea", id="o-1")
        run.result()
        assert engine.check("o-1", processes=0).is_safe
        assert replay(run.recording(), shop.order, processes=0).is_safe


async def test_compressed_and_signed_values_are_checked(tmp_db: str) -> None:
    codecs = {"pickle": {"key": b"k" * 32}, "zstd": {}}
    async with perdure.Engine(tmp_db, EVERY, codecs=codecs) as engine:
        await engine.run(shop.order, "tea " * 2_000, id="o-1")
        assert (await engine.check("o-1")).is_safe
        assert (await engine.check("o-1", processes=0)).is_safe
        recording = await engine.get("o-1").recording()
    assert replay(recording, shop.order, codec=("pickle", codecs["pickle"])).is_safe
    with pytest.raises(perdure.UsageError, match="the pickle codec needs a key"):
        replay(recording, shop.order)
