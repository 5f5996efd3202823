"""Real complaints about security: stored bytes never become code."""

from __future__ import annotations

import asyncio
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import step, workflow
from perdure.model.event import EMPTY_TAIL, Draft, sealed
from tests.cases.conftest import World
from tests.cases.ledger import until


class Harmful:
    """Writes a canary file when it is made, called or unpickled."""

    def __init__(self, path: str = "canary") -> None:
        Path(path).write_text("harmful")

    def __reduce__(self) -> Any:
        return Path.write_text, (Path("canary"), "unpickled")


@step
async def answer() -> Any:
    return 1


@workflow
async def asks(value: Any = None) -> Any:
    first = await answer()
    await perdure.sleep(0.3)
    return [value, first]


OS_SYSTEM = "touch canary"


def crafted() -> dict[str, bytes]:
    """Give what an attacker may write: pickles, and the engine's own tags naming what does harm."""
    here = "tests.cases.test_security:Harmful"
    tags: list[Any] = [
        {"$": "dataclass", "t": "os:system", "v": {"command": OS_SYSTEM}},
        {"$": "dataclass", "t": "builtins:eval", "v": {"source": "open('canary','w')"}},
        {"$": "dataclass", "t": here, "v": {"path": "canary"}},
        {"$": "model", "t": here, "v": {"path": "canary"}},
        {"$": "enum", "t": here, "v": "canary"},
        {"$": "struct", "t": here, "v": {"path": "canary"}},
        {"$": here, "v": {"path": "canary"}},
        {"type": "os:system", "message": "x", "args": [OS_SYSTEM], "attributes": {}, "traceback": ""},
        {"type": here, "message": "x", "args": ["canary"], "attributes": {"path": "canary"}, "traceback": ""},
    ]
    made = {f"tag {n}": json.dumps(tag).encode() for n, tag in enumerate(tags)}
    made["pickle"] = pickle.dumps(HarmfulPickle())
    return made


class HarmfulPickle:
    def __reduce__(self) -> Any:
        return _write_canary, ()


def _write_canary() -> None:
    Path("canary").write_text("unpickled")


@pytest.mark.sqlite_only
async def test_case_sec_02(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who can write a row can run code in the worker and in the commands.

    Crafted pickles, and the engine's own format naming os.system, eval and a class with a harmful constructor, in
    input, step result and error; then recover, list, history, result. No code runs; what is refused is refused by
    name. Source: GHSA-g48c-2wqr-h844 / CVE-2026-28277, CVE-2025-64439, sartography/SpiffWorkflow#167.
    """
    monkeypatch.chdir(world.folder)
    async with world.engine([asks], evict_after="20ms") as engine:
        await engine.start(asks, id="seed")
        await until(lambda: world.rows("select count(*) from event where type = 'step_completed'") == [(1,)])
        bytes_of = crafted()
        for place in ("input", "payload", "error"):
            for name in bytes_of:
                await engine.start(asks, {"x": 1}, id=f"{place}/{name}")
        waiting = "select count(*) from run where status = 'waiting' or id = 'seed'"
        await until(lambda: world.rows(waiting)[0][0] > 3 * len(bytes_of), what="all wait")
    world.write("drop trigger event_log_no_update")
    for name, data in bytes_of.items():
        sql = "update event_log set {} where run_no = (select no from run where id = ?) and type = '{}'"
        writes = {
            "input": ("input = ?", "run_started"),
            "payload": ("payload = ?", "step_completed"),
            "error": ("payload = ?, type = 'step_failed'", "step_completed"),
        }
        for place, (what, kind) in writes.items():
            run_id = f"{place}/{name}"
            world.write(sql.format(what, kind), data, run_id)
            relink(world, run_id)
    monkeypatch.setattr(Harmful, "__init__", lambda self, path="canary": Path("canary").touch())
    async with world.engine([asks]) as engine:
        infos = [info async for info in engine.list()]
        for info in infos:
            outcome = (await asyncio.gather(engine.get(info.id).result(timeout=30), return_exceptions=True))[0]
            assert isinstance(outcome, list | perdure.RunParked | perdure.RunFailed), outcome
            for event in await engine.get(info.id).history():
                assert not isinstance(event.result, Harmful | HarmfulPickle)
    assert not (world.folder / "canary").exists()
    assert len(infos) == 3 * len(bytes_of) + 1


def relink(world: World, run_id: str) -> None:
    """Compute the digests of a log anew, as somebody would who knows how: they are no secret."""
    columns = "seq, at, epoch, type, op, kind, name, attempt, state, digest, detail, input, payload"
    chain = EMPTY_TAIL.chain
    for seq, at, epoch, kind, *rest in world.rows(f"select {columns} from event where run_id = ? order by seq", run_id):
        chain = sealed(run_id, seq, Draft(kind, at, *rest), at, epoch, 0, chain).chain
        where = "run_no = (select no from run where id = ?) and seq = ?"
        world.write(f"update event_log set chain = ? where {where}", chain, run_id, seq)


async def test_pickle_needs_to_be_asked_for(world: World) -> None:
    """SEC-02, the last part: the unsafe format only after an explicit choice in the configuration."""
    async with world.engine([asks]) as engine:
        with pytest.raises(perdure.CodecError):
            await engine.start(asks, HarmfulPickle())
        assert [info async for info in engine.list()] == []
