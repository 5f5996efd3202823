"""Makes the golden database of this release: a stored version with runs in flight, as later releases will find it.

``python -m tests.version.golden_runs`` writes ``golden/RELEASE.db.gz``, to be kept from then on. It is made anew only
while the release is not published, and only if one of its migrations has changed; its timers are due a minute later.
What each run has to return is in its tag ``result``; each step says in ``$LEDGER`` that it was there.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import apsw

import perdure
from perdure import Engine

GOLDEN: Final = Path(__file__).with_name("golden")
_WORKER: Final = Path(__file__).parents[1] / "deploys" / "worker.py"
_PATHLESS: Final = (
    "import runpy, sys; sys.tracebacklimit = 0; sys.argv.pop(0); runpy.run_path(sys.argv[0], None, '__main__')"
)
"""Tracebacks would name folders of the machine that the file is made on."""
SOURCE: Final = """
import asyncio, os
from dataclasses import dataclass
from pathlib import Path
import perdure
from beside import UNIT

@dataclass
class Order:
    count: int
    unit: str = UNIT

def note(what, value):
    with Path(os.environ["LEDGER"]).open("a") as file:
        file.write(f"{perdure.step_info().run_id} {what}\\n")
    return value

@perdure.step
async def take(count: int) -> Order:
    return note("take", Order(count))

@perdure.step
def pack(order: Order) -> str:
    import late
    return note("pack", f"{order.count} {late.plural(order.unit)}")

@perdure.step(retry=perdure.Retry(attempts=3, initial="60s"))
async def courier(order: Order) -> str:
    if perdure.step_info().attempt == 1:
        raise ConnectionError("no answer")
    return note("courier", f"attempt {perdure.step_info().attempt}")

@perdure.step
async def weigh(order: Order) -> int:
    if not (mark := Path(os.environ["LEDGER"] + ".weighing")).exists():
        mark.touch()
        await asyncio.sleep(600)
    return note("weigh", order.count * 100)

@perdure.workflow(version="1.0.0")
async def sleeping(count: int) -> str:
    order = await take(count)
    await asyncio.sleep(60)
    return await pack.aio(order)

@perdure.workflow(version="1.0.0")
async def gathering(count: int) -> list:
    order = await take(count)
    async def later():
        await asyncio.sleep(60)
        return await pack.aio(order)
    first, second, third = await asyncio.gather(pack.aio(order), later(), take(count + 1))
    return [first, second, third.count]

@perdure.workflow(version="1.0.0")
async def retrying(count: int) -> str:
    return await courier(await take(count))

@perdure.workflow(version="1.0.0")
async def weighing(count: int) -> int:
    return await weigh(await take(count))

@perdure.workflow(version="1.0.0")
async def patched(count: int) -> list:
    first = await take(count) if perdure.patched("take first") else None
    try:
        async with asyncio.timeout(60):
            await asyncio.Event().wait()
    except TimeoutError:
        pass
    return [await pack.aio(first), perdure.random() < 1, len(str(perdure.uuid4()))]
"""
FILES: Final = {
    "shop.py": SOURCE,
    "beside.py": "UNIT = 'cup'\n",
    "late.py": "def plural(unit):\n    return unit + 's'\n",
}
RUNS: Final = {
    "sleeping": "'3 cups'",
    "gathering": "['3 cups', '3 cups', 4]",
    "retrying": "'attempt 2'",
    "weighing": "300",
    "patched": "['3 cups', True, 36]",
}


async def _until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not await true():
            await asyncio.sleep(0.05)


async def _begin(url: str) -> None:
    async with Engine(url, worker=False) as engine:
        for name, result in RUNS.items():
            await engine.start(name, 3, id=name, tags={"result": result})

        async def left() -> bool:
            states = {info.id: info.status.value async for info in engine.list()}
            return [states[name] for name in RUNS] == ["waiting", "waiting", "waiting", "running", "waiting"]

        await _until(left)


def make() -> Path:
    """Make the database, and return where it is."""
    target = GOLDEN / f"{perdure.__version__}.db.gz"
    with tempfile.TemporaryDirectory() as folder:
        app = Path(folder) / "app"
        app.mkdir()
        for name, text in FILES.items():
            (app / name).write_text(text, "utf-8")
        url = f"sqlite:///{folder}/made.db"
        around = {**os.environ, "LEDGER": f"{folder}/ledger", "USER": "maker", "LOGNAME": "maker"}
        words = [sys.executable, "-c", _PATHLESS, str(_WORKER), url, str(app)]
        with subprocess.Popen(words, env=around, stdout=subprocess.PIPE) as worker:
            try:
                assert worker.stdout is not None
                worker.stdout.readline()
                asyncio.run(_begin(url))
            finally:
                worker.send_signal(signal.SIGKILL)  # the step in flight stays so
        with closing(apsw.Connection(f"{folder}/made.db")) as connection:
            connection.execute("vacuum into ?", (f"{folder}/golden.db",))
        data = Path(folder, "golden.db").read_bytes()
    target.write_bytes(gzip.compress(data, 9, mtime=0))
    return target


if __name__ == "__main__":
    print(make())
