"""Two workflows of one release, of which one cannot be loaded: it neither stops the other nor is kept waiting by it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure import Engine, Status
from tests.deploys.place import Place, end, until, until_recorded
from tests.process import Spawner

LOADED = """
import os
with open(os.environ["SHOP_LEDGER"], "a") as ledger:
    print({name!r}, os.getpid(), file=ledger)
"""
FLOW = """
import asyncio, os
import perdure

@perdure.step(name="say " + {name!r})
async def say() -> str:
    return {label!r}

@perdure.workflow(name={name!r}, version={label!r})
async def flow(seconds: float) -> list[str]:
    first = await say()
    await asyncio.sleep(seconds)
    return [first, await say()]
"""
NEEDS = "import os\nQUEUE = os.environ['OLD_QUEUE_URL']\n"


def shop(label: str, head: str = "") -> dict[str, str]:
    """Return a shop of two workflows, each in its own module that writes down when a process loads it."""
    names = {"fulfil": "", "refund": head}
    return {"shop.py": "import fulfil, refund\nfrom fulfil import flow as f\nfrom refund import flow as r\n"} | {
        f"{name}.py": LOADED.format(name=name) + more + FLOW.format(name=name, label=label)
        for name, more in names.items()
    }


def loads(ledger: Path) -> list[str]:
    """Return the names of modules in the order in which processes loaded them."""
    return [line.split()[0] for line in ledger.read_text("utf-8").splitlines()]


@pytest.fixture
def place(tmp_path: Path, tmp_db: str, spawn: Spawner) -> Place:
    return Place(tmp_path, tmp_db, spawn)


@pytest.mark.parametrize("host_idle", ["0.2", "30"])
async def test_a_version_that_cannot_be_loaded_is_tried_apart_from_the_rest_of_its_release(
    place: Place, tmp_path: Path, tmp_db: str, host_idle: str
) -> None:
    """Its runs are parked whenever they become due, tried again later and later, and go on once it can be loaded.

    Meanwhile the release's other workflow runs in a host that is left alone, and started for its own runs only.
    """
    ledger = tmp_path / "ledger"
    env = {"SHOP_LEDGER": str(ledger)}
    async with Engine(tmp_db, worker=False) as engine:
        old = await asyncio.to_thread(place.worker, "old", shop("1.0.0", NEEDS), OLD_QUEUE_URL="x", **env)
        refunds = [await engine.start("refund", seconds, id=f"r-{seconds}") for seconds in (0.1, 7.0)]
        orders = [await engine.start("fulfil", seconds, id=f"f-{seconds}") for seconds in (1.0, 60.0)]
        for run in (*refunds, *orders):
            await until_recorded(run, "step_completed")
        await asyncio.to_thread(end, old)
        place.forget("old")
        ledger.write_text("")
        worker = await asyncio.to_thread(place.worker, "new", shop("2.0.0"), f"host_idle={host_idle}", **env)
        await until(refunds[0], Status.PARKED)
        await until(orders[0], Status.COMPLETED)
        # Its host has nothing to do now, and may leave. Another run becomes due that cannot be run: it is parked too.
        before = loads(ledger)
        await until(refunds[1], Status.PARKED)
        new = loads(ledger)[len(before) :]
        assert "fulfil" not in new
        assert len(new) <= 2  # the other: 5 s after it was refused, and 10 s after that
        await engine.hosts.set_environment("refund", "1.0.0", {"OLD_QUEUE_URL": "x"}, reason="it is needed")
        for run in refunds:
            await until(run, Status.COMPLETED)
            assert await run.result() == ["1.0.0", "1.0.0"]
        assert (await orders[1].info()).status == Status.WAITING
        await asyncio.to_thread(end, worker)
