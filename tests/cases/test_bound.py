"""Real complaints about changed code, with runs bound to the version they began with, and real worker processes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from perdure import Engine, Run, RunFailed, Status
from tests.deploys.place import Place, end, until, until_recorded
from tests.process import Child, Spawner

HEAD = """
import asyncio, os
from dataclasses import dataclass
from pathlib import Path
import perdure

def note(what, value):
    with Path(os.environ["LEDGER"]).open("a") as file:
        file.write(f"{perdure.step_info().run_id} {what} {os.getpid()} {perdure.step_info().attempt}\\n")
    return value
"""


def code(body: str) -> str:
    return HEAD + dedent(body)


class Site:
    """A place with a ledger outside, and an engine to start runs with."""

    def __init__(self, place: Place, engine: Engine) -> None:
        self._place = place
        self._ledger = place.folder / "ledger"
        self.engine = engine

    async def deploy(self, name: str, files: str | Mapping[str, str], *before: tuple[str, Child]) -> Child:
        """Start a worker of new code; then end those of the old, and delete their source."""
        worker = await asyncio.to_thread(self._place.worker, name, files, LEDGER=str(self._ledger))
        for old, child in before:
            await asyncio.to_thread(end, child)
            self._place.forget(old)
        return worker

    async def begin(self, workflow: str, run_id: str) -> Run[Any]:
        """Start a run and wait until its first step is recorded."""
        run: Run[Any] = await self.engine.start(workflow, id=run_id)
        await until_recorded(run, "step_completed")
        return run

    def effects(self, run_id: str) -> list[tuple[str, int, int]]:
        """Return what steps of a run did, by the ledger's word: step, process, attempt."""
        lines = [line.split() for line in self._ledger.read_text("utf-8").splitlines()]
        return [(what, int(pid), int(attempt)) for run, what, pid, attempt in lines if run == run_id]

    def steps(self, run_id: str) -> list[str]:
        return [what for what, _, _ in self.effects(run_id)]


@pytest.fixture
async def site(tmp_path: Path, tmp_db: str, spawn: Spawner) -> Any:
    async with Engine(tmp_db, worker=False) as engine:
        yield Site(Place(tmp_path, tmp_db, spawn), engine)


FULFIL = """
@perdure.step
async def charge() -> str:
    return note("charge", tariff.PRICE)

@perdure.step
async def ship() -> str:
    return note("ship", tariff.PRICE)
"""
FIRST = """
@perdure.workflow(version="{label}")
async def fulfil() -> list[str]:
    paid = await charge()
    await asyncio.sleep({wait})
    return [paid, await ship()]
"""
SCREENED = """
@perdure.step
async def screen() -> str:
    return note("screen", "screened")

@perdure.workflow(version="{label}")
async def fulfil() -> list[str]:
    screened = await screen()
    paid = await charge()
    await asyncio.sleep({wait})
    return [screened, paid, await ship()]
"""


def build(*, price: str, bystander: str, label: str = "1.0.0", flow: str = FIRST, wait: float = 2.0) -> dict[str, str]:
    """Return a build: a workflow with a helper it imports, and another workflow beside it."""
    return {
        "flow.py": code("import tariff") + FULFIL + flow.format(label=label, wait=wait),
        "tariff.py": f"PRICE = {price!r}\n",
        "report.py": code(f"@perdure.workflow\nasync def report() -> str:\n    return {bystander!r}\n"),
        "shop.py": "from flow import fulfil\nfrom report import report\n",
    }


async def test_case_ver_01_bystander(site: Site) -> None:
    """Editing any workflow strands every run in flight: here another one is edited, and the version stays.

    The run goes on in the new worker itself. Source: dbos-inc/dbos-transact-golang#174, czpython/druks PR#632,
    dbos-inc/dbos-transact-ts PR#765.
    """
    old = await site.deploy("old", build(price="9", bystander="one"))
    run = await site.begin("fulfil", "r")
    new = await site.deploy("new", build(price="9", bystander="another"), ("old", old))
    assert await run.result(timeout="20s") == ["9", "9"]
    assert site.effects("r") == [("charge", old.pid, 1), ("ship", new.pid, 1)]
    assert await site.engine.run("report") == "another"
    await asyncio.to_thread(end, new)


@pytest.mark.parametrize(
    "changed,expected",
    [
        (build(price="12", bystander="one", wait=0.1), ["12", "12"]),
        (build(price="9", bystander="one", label="1.1.0", flow=SCREENED, wait=0.1), ["screened", "9", "9"]),
        (build(price="12", bystander="two", label="2.0.0", flow=SCREENED, wait=0.1), ["screened", "12", "12"]),
    ],
    ids=["helper", "workflow", "everything"],
)
async def test_case_ver_01_bound(site: Site, changed: dict[str, str], expected: list[str]) -> None:
    """The same with the helper, the workflow itself, or all of it edited: the run goes on under its own code."""
    old = await site.deploy("old", build(price="9", bystander="one"))
    run = await site.begin("fulfil", "r")
    new = await site.deploy("new", changed, ("old", old))
    assert await site.engine.run("fulfil", id="new") == expected
    assert await run.result(timeout="20s") == ["9", "9"]
    assert site.steps("r") == ["charge", "ship"]
    assert site.effects("r")[1][1] not in (old.pid, new.pid)  # a version host
    assert {event.version for event in await run.history()} == {"1.0.0"}
    await asyncio.to_thread(end, new)


PAIR = """
@perdure.step
async def take_a() -> str:
    return note("take_a", "a")

@perdure.step
async def take_b() -> str:
    return note("take_b", "b")

@perdure.step
async def use(a: str, b: str) -> str:
    return note("use", a + b)
"""
ORIGINAL = PAIR + """
@perdure.workflow(version="1.0.0")
async def flow() -> str:
    a = await take_a()
    b = await take_b()
    await asyncio.sleep(2)
    return await use(a, b)
"""  # fmt: skip
REORDERED = PAIR + """
@perdure.workflow(version="1.1.0")
async def flow() -> str:
    b = await take_b()
    a = await take_a()
    await asyncio.sleep(0.1)
    return await use(a, b)
"""  # fmt: skip


async def test_case_ver_03_bound(site: Site) -> None:
    """Reordered steps: a run finishes in the order it began with, new runs take the new one, and none gets the other's.

    Source: Azure/azure-functions-durable-js#122, dbos-inc/dbos-transact-py PR#284.
    """
    old = await site.deploy("old", code(ORIGINAL))
    run = await site.begin("flow", "r")
    new = await site.deploy("new", code(REORDERED), ("old", old))
    assert await site.engine.run("flow", id="new") == "ab"
    assert await run.result(timeout="20s") == "ab"
    assert (site.steps("r"), site.steps("new")) == (["take_a", "take_b", "use"], ["take_b", "take_a", "use"])
    await asyncio.to_thread(end, new)


STORED = """
@dataclass
class P:
    {fields}

@perdure.step
async def make() -> P:
    return note("make", P({values}))

@perdure.step
async def tell(p: P) -> str:
    return note("tell", repr(p))

@perdure.workflow(version="{label}")
async def flow() -> str:
    p = await make()
    await asyncio.sleep({wait})
    return await tell(p)
"""


async def test_case_ver_04_bound(site: Site) -> None:
    """A stored value gets a new required field: a run from before reads its value with the class it was written with.

    Source: PostHog/posthog PR#56068.
    """
    first = STORED.format(fields="x: int", values="1", label="1.0.0", wait=2)
    second = STORED.format(fields="x: int\n    y: int", values="1, 2", label="1.1.0", wait=0.1)
    old = await site.deploy("old", code(first))
    run = await site.begin("flow", "r")
    new = await site.deploy("new", code(second), ("old", old))
    assert await site.engine.run("flow", id="new") == "P(x=1, y=2)"
    assert await run.result(timeout="20s") == "P(x=1)"
    assert site.steps("r") == ["make", "tell"]
    await asyncio.to_thread(end, new)


STUCK = """
@perdure.step
async def go(n: int) -> int:
    note("go", n)
    if n == 3 and not {mended}:
        raise ValueError("a bug")
    return n

@perdure.workflow(version="{label}")
async def flow() -> list[int]:
    return [await go(n) for n in (1, 2, 3)]
"""


async def test_case_ver_10_bound(site: Site) -> None:
    """A stuck run cannot be moved to fixed code without repeating what succeeded.

    The third step fails for good; the run is upgraded to a version in which it does not, by name and with a reason: it
    goes on there, repeats nothing, and says so in its history. A retry alone fails again: it keeps its own code.
    Source: restatedev/restate#3817, restatedev/restate#3144.
    """
    old = await site.deploy("old", code(STUCK.format(mended=False, label="1.0.0")))
    run = await site.engine.start("flow", id="r")
    await until_recorded(run, "run_failed")
    new = await site.deploy("new", code(STUCK.format(mended=True, label="1.1.0")), ("old", old))
    await site.engine.retry("r")
    with pytest.raises(RunFailed, match="a bug"):
        await run.result(timeout="20s")
    plan = await site.engine.upgrades.plan(ids=["r"], to="1.1.0")
    (applied,) = await site.engine.upgrades.apply(plan, reason="fixed in 1.1", actor="ann")
    assert str(applied) == "r: applied: 1.0.0 → 1.1.0: SAFE"
    assert await run.result(timeout="20s") == [1, 2, 3]
    assert site.steps("r") == ["go"] * 5
    assert {pid for _, pid, _ in site.effects("r")[-1:]} == {new.pid}
    (upgraded,) = [event.detail for event in await run.history() if event.type == "run_upgraded"]
    assert (upgraded["from"], upgraded["to"], upgraded["actor"], upgraded["reason"]) == (
        "1.0.0", "1.1.0", "ann", "fixed in 1.1"
    )  # fmt: skip
    await asyncio.to_thread(end, new)


TWO = """
@perdure.step
async def go(n: int) -> int:
    return note("go", n)

@perdure.workflow(version="1.1.0")
async def refund(n: int) -> int:
    return await go(n)
"""


async def refunds(site: Site, first: int) -> list[Run[Any]]:
    return [await site.engine.start("refund", n, id=f"refund-{n}") for n in range(first, first + 3)]


async def test_case_ver_07_bound(site: Site) -> None:
    """An old worker meets a task that it does not know: it leaves it, and runs it once it can have its code.

    While nobody has the code the runs wait. A new worker executes them, beside the old one. When that is gone, the old
    worker executes more of them in a version host. Source: celery/celery#8165, celery/celery#6485,
    SuperCoopBerlin/tapir PR#485.
    """
    old = await site.deploy("old", code(ORIGINAL))
    waiting = await refunds(site, 0)
    await asyncio.sleep(1)
    assert [await run.status() for run in waiting] == [Status.PENDING] * 3
    new = await site.deploy("new", code(TWO))
    assert [await run.result(timeout="20s") for run in waiting] == [0, 1, 2]
    assert [site.effects(run.id) for run in waiting] == [[("go", new.pid, 1)]] * 3
    await asyncio.to_thread(end, new)
    later = await refunds(site, 3)
    assert [await run.result(timeout="20s") for run in later] == [3, 4, 5]
    for run in later:
        [(_, pid, attempt)] = site.effects(run.id)
        assert (pid in (old.pid, new.pid), attempt) == (False, 1)
        assert (await run.info()).version == "1.1.0"
    await asyncio.to_thread(end, old)
    assert old.err.count("refund") < 10


STABLE = PAIR + """
@perdure.workflow(name="flow", version="1.1.0")
async def another_name() -> str:
    return await take_b()
"""  # fmt: skip
RENAMED = PAIR + """
@perdure.workflow(version="1.1.0")
async def another_name() -> str:
    return await take_b()
"""  # fmt: skip


@pytest.mark.parametrize("changed,name", [(STABLE, "flow"), (RENAMED, "another_name")], ids=["stable", "renamed"])
async def test_case_ver_09_bound(site: Site, changed: str, name: str) -> None:
    """A function is renamed, under a stable name or not: runs of the old name go on in a version host.

    Source: czpython/druks PR#632.
    """
    old = await site.deploy("old", code(ORIGINAL))
    run = await site.begin("flow", "r")
    new = await site.deploy("new", code(changed), ("old", old))
    assert await site.engine.run(name) == "b"
    assert await run.result(timeout="20s") == "ab"
    assert site.steps("r") == ["take_a", "take_b", "use"]
    info = await until(run, Status.COMPLETED)
    assert (info.workflow, info.version) == ("flow", "1.0.0")
    await asyncio.to_thread(end, new)
