"""A version host: what it runs, when it leaves, and what is left when it is killed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from perdure import Engine
from perdure.runtime.hosts.job import Entry, Job
from perdure.runtime.hosts.process import HostProcess, Spawner
from tests.hosting.releases import PATIENCE_S, answer, flow, hosted, kept, make_database, make_job, told

WAIT_FOR = """
import time
from pathlib import Path

def mark(name):
    with open(Path({folder!r}) / name, "a") as file:
        file.write("x")

def wait_for(name):
    while not (Path({folder!r}) / name).exists():
        time.sleep(0.01)
"""
IMPATIENT = {"poll": 0.05, "lease": "2s", "grace": "100ms"}


def waiting(tmp: Path) -> dict[str, str]:
    """Return a project whose step says that it has begun, waits to be let go, and says that it has ended."""
    body = "mark('begun')\nwait_for('go')\nmark('ended')\nreturn os.getpid()"
    return flow(body, "import os\nfrom shop.signs import mark, wait_for\n") | {
        "shop/signs.py": WAIT_FOR.format(folder=str(tmp))
    }


async def until(path: Path, content: str = "x") -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not path.exists() or path.read_text() != content:
            await asyncio.sleep(0.01)


async def ended(host: HostProcess) -> int:
    async with asyncio.timeout(PATIENCE_S):
        return await host.ended()


@asynccontextmanager
async def in_its_step(job: Job, folder: Path, url: str) -> AsyncIterator[tuple[HostProcess, Engine]]:
    """Give a host in the middle of the step of one run, which is `waiting`, and a client."""
    async with hosted(job) as host, Engine(url, worker=False) as engine:
        await told(host)
        await engine.start("order", id="o-1")
        await until(folder / "begun")
        yield host, engine


async def test_it_runs_stored_code_whose_files_are_gone(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, flow("return 'v1', __file__, args"), await make_database(tmp_db))
    async with hosted(job) as host:
        ready = await told(host)
        assert ready.versions == [job.entries[0].version_id]
        assert await answer(tmp_db, 5) == ("v1", str(tmp_path / "cache" / job.tree / "shop/flow.py"), (5,))


async def test_sets_have_the_same_order_in_all_hosts(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, flow("return list({'a', 'b', 'c', 'd', 'e', 'f'})"), await make_database(tmp_db))
    orders = []
    for number in range(3):
        async with hosted(job) as host:
            await told(host)
            orders.append(await answer(tmp_db, id=f"o-{number}"))
    assert orders[0] == orders[1] == orders[2]


async def test_a_script_is_the_module_of_its_name_and_main_too(tmp_path: Path, tmp_db: str) -> None:
    body = "import sys\nreturn __name__, sys.modules['__main__'] is sys.modules['flow'], type(Thing()).__module__"
    script = (
        flow(body, "class Thing: ...\n")["shop/flow.py"] + "\nif __name__ == '__main__':\n    raise SystemExit(9)\n"
    )
    job = make_job(tmp_path, {"flow.py": script}, await make_database(tmp_db), "flow:order")
    async with hosted(job) as host:
        await told(host)
        assert await answer(tmp_db) == ("flow", True, "flow")


async def test_what_old_code_prints_is_logged_and_is_no_state(
    tmp_path: Path, tmp_db: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "perdure.hosts")
    head = "import sys, logging\nprint('{\"state\": \"idle\"}')\nprint('to errors', file=sys.stderr)\n"
    body = "logging.getLogger('shop').warning('careful')\nprint('last', end='')"
    job = make_job(tmp_path, flow(body, head), await make_database(tmp_db))
    async with hosted(job) as host:
        await told(host, "ready")
        await answer(tmp_db)
        host.terminate()
        await ended(host)
    said = [(record.levelname, record.message) for record in caplog.records]
    assert ("INFO", 'release 71: {"state": "idle"}') in said
    assert ("INFO", "release 71: to errors") in said
    assert ("WARNING", "release 71: shop: careful") in said
    assert ("INFO", "release 71: last") in said


async def test_secrets_are_neither_arguments_nor_environment(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, flow("return 1"), await make_database(tmp_db))
    async with hosted(job) as host:
        await told(host)
        for name in ("cmdline", "environ"):
            assert tmp_db.encode() not in Path(f"/proc/{host.pid}/{name}").read_bytes()


async def test_it_leaves_when_there_is_nothing_to_do(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, waiting(tmp_path), await make_database(tmp_db), host_idle_s=0.4)
    async with hosted(job) as host, Engine(tmp_db, worker=False) as engine:
        run = await engine.start("order", id="o-1")
        await until(tmp_path / "begun")
        await asyncio.sleep(0.8)  # a step under way is something to do, however long
        (tmp_path / "go").touch()
        assert await run.result() == host.pid
        await told(host, "ready")
        await told(host, "idle")
        assert await ended(host) == 0


async def test_asked_to_stop_it_finishes_its_step(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, waiting(tmp_path), await make_database(tmp_db))
    async with in_its_step(job, tmp_path, tmp_db) as (host, _):
        host.terminate()
        await asyncio.sleep(0.3)
        (tmp_path / "go").touch()
        assert await ended(host) == 0
    assert (tmp_path / "ended").read_text() == "x"
    async with hosted(job) as other:
        await told(other)
        assert await answer(tmp_db) == host.pid  # the step was not repeated


async def test_asked_to_stop_it_hands_back_what_takes_longer_than_its_grace(tmp_path: Path, tmp_db: str) -> None:
    settings = {"poll": 0.05, "lease": "60s", "grace": "300ms"}
    job = make_job(tmp_path, waiting(tmp_path), await make_database(tmp_db), settings=settings)
    async with in_its_step(job, tmp_path, tmp_db) as (host, _):
        host.terminate()
        await ended(host)
    (tmp_path / "go").touch()
    begun = time.monotonic()
    async with hosted(job) as other:
        await told(other)
        assert await answer(tmp_db) == other.pid
    assert time.monotonic() - begun < 40  # handed back: nobody waited for the lease


async def test_asked_to_drain_it_finishes_its_step_however_long_that_takes(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, waiting(tmp_path), await make_database(tmp_db), settings=IMPATIENT)
    async with in_its_step(job, tmp_path, tmp_db) as (host, engine):
        host.drain()
        await asyncio.sleep(0.6)
        await engine.start("order", id="o-2")
        (tmp_path / "go").touch()
        assert await ended(host) == 0
        assert (tmp_path / "begun").read_text() == "x"  # the other run was not begun
    assert (tmp_path / "ended").read_text() == "x"


async def test_draining_can_be_cut_short(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, waiting(tmp_path), await make_database(tmp_db), settings=IMPATIENT)
    async with in_its_step(job, tmp_path, tmp_db) as (host, _):
        host.drain()
        await asyncio.sleep(0.3)
        host.terminate()
        await ended(host)
    assert not (tmp_path / "ended").exists()


async def test_killed_in_a_step_another_does_it_again(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, waiting(tmp_path), await make_database(tmp_db))
    async with in_its_step(job, tmp_path, tmp_db) as (host, _):
        host.kill()
        assert await ended(host) == -signal.SIGKILL
    (tmp_path / "go").touch()
    async with hosted(job) as other:
        await told(other)
        assert await answer(tmp_db) == other.pid
    assert (tmp_path / "begun").read_text() == "xx"


async def test_killed_while_it_unpacks_another_starts_over(tmp_path: Path, tmp_db: str) -> None:
    many = {f"shop/part{number}.py": f"NAME = {number}\n" * 50 for number in range(1500)}
    job = make_job(tmp_path, flow("from shop.part1499 import NAME\nreturn NAME") | many, await make_database(tmp_db))
    async with hosted(job) as host:
        async with asyncio.timeout(PATIENCE_S):
            while not list((tmp_path / "cache").glob(".unpacking-*/shop/part*.py")):
                await asyncio.sleep(0.001)
        host.kill()
        await ended(host)
    assert not (tmp_path / "cache" / job.tree).exists()
    (left,) = (tmp_path / "cache").glob(".unpacking-*")
    os.utime(left, (0, 0))  # long ago
    async with hosted(job) as other:
        await told(other)
        assert await answer(tmp_db) == 1499
    assert not left.exists()


async def test_two_unpack_the_same_version_at_once(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, flow("return 'v1'"), await make_database(tmp_db))
    async with hosted(job) as one, hosted(job) as two:
        await asyncio.gather(told(one), told(two))
        assert await answer(tmp_db) == "v1"
    assert kept(tmp_path / "cache") == [job.tree]


async def test_bytecode_is_kept_in_the_tree_even_where_that_is_switched_off(tmp_path: Path, tmp_db: str) -> None:
    job = make_job(tmp_path, flow("return 'v1'"), await make_database(tmp_db))
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    for _ in range(2):  # and a tree with bytecode in it is taken again
        async with hosted(job, Spawner(environ=environ)) as host:
            await told(host)
        assert len(list((tmp_path / "cache" / job.tree / "shop" / "__pycache__").glob("flow.*.pyc"))) == 1


async def test_versions_of_one_release_share_a_host(tmp_path: Path, tmp_db: str) -> None:
    other = "import perdure\n\n@perdure.workflow\nasync def refund():\n    return 'refunded'\n"
    files = flow("return 'v1'") | {"shop/refund.py": other, "shop/broken.py": "import shop.flow\n1 / 0\n"}
    job = make_job(tmp_path, files, await make_database(tmp_db), also={"refund": "shop.refund:refund"})
    job = msgspec.structs.replace(job, entries=[*job.entries, Entry("x", "shop.broken:x", 99, "0.1")])
    async with hosted(job) as host, Engine(tmp_db, worker=False) as engine:
        failed = await told(host, "failed")
        assert (failed.versions, failed.cause and failed.cause.version) == ([99], "x@0.1")
        assert (await told(host)).versions == [entry.version_id for entry in job.entries[:2]]
        assert await answer(tmp_db) == "v1"
        assert await (await engine.start("refund", id="r-1")).result() == "refunded"


async def test_a_workflow_under_another_name_in_its_module_is_found(tmp_path: Path, tmp_db: str) -> None:
    text = "import perdure\n\ndef plain():\n    return 'v1'\n\nwrapped = perdure.workflow(name='order')(plain)\n"
    files = {"shop/__init__.py": "", "shop/flow.py": text}
    job = make_job(tmp_path, files, await make_database(tmp_db), "shop.flow:plain")
    async with hosted(job) as host:
        await told(host)
        assert await answer(tmp_db) == "v1"


def with_bootstrap(job: Job, place: str = "shop.boot:init") -> Job:
    return msgspec.structs.replace(job, bootstrap=place)


async def test_the_old_set_up_runs_before_the_old_code(tmp_path: Path, tmp_db: str) -> None:
    boot = "import os\nDONE = []\ndef init():\n    DONE.append(os.environ['OLD_QUEUE_URL'])\n"
    files = flow("return FOUND", "from shop.boot import DONE\nFOUND = list(DONE)\n") | {"shop/boot.py": boot}
    job = with_bootstrap(make_job(tmp_path, files, await make_database(tmp_db), environment={"OLD_QUEUE_URL": "amqp:"}))
    async with hosted(job) as host:
        await told(host)
        assert await answer(tmp_db) == ["amqp:"]
