"""How long a host takes to be ready, and how much memory it has to itself. ``make bench`` prints it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import pytest

from perdure.runtime.hosts.forkserver import WarmSpawner
from perdure.runtime.hosts.job import Job
from perdure.runtime.hosts.process import HostProcess, Spawner
from tests.hosting.releases import flow, make_database, make_job, told
from tests.hosting.test_forkserver import kept, warm

TIMES = 12
HEADS = {"perdure alone": "", "pydantic": "import pydantic\nclass M(pydantic.BaseModel):\n    x: int\n"}


async def started(job: Job, spawn: Callable[[Job], Awaitable[HostProcess]]) -> list[tuple[float, float, float]]:
    """Return milliseconds until ready, and MiB resident and private, of several hosts."""
    found = []
    for _ in range(TIMES):
        began = time.perf_counter()
        async with kept(await spawn(job)) as host:
            await told(host)
            took = (time.perf_counter() - began) * 1000
            lines = Path(f"/proc/{host.pid}/smaps_rollup").read_text().splitlines()
            sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines[1:]}
            found.append((took, sizes["Rss"], sizes["Private_Clean"] + sizes["Private_Dirty"]))
    return found


def shown(how: str, found: list[tuple[float, float, float]]) -> str:
    times = [took for took, _, _ in found[1:]]
    return (
        f"{how}: ready after {median(times):.0f} ms (least {min(times):.0f}, first {found[0][0]:.0f}), "
        f"{found[-1][1]:.0f} MiB resident, {found[-1][2]:.0f} MiB private"
    )


@pytest.mark.bench
@pytest.mark.parametrize("what", HEADS)
async def test_how_long_a_host_takes(
    tmp_path: Path, tmp_db: str, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    modules = {f"shop/m{number}.py": f"NAME = {number}\n" * 20 for number in range(14)}
    head = HEADS[what] + "".join(f"from shop import m{number}\n" for number in range(14))
    job = make_job(tmp_path, flow("return 1", head) | modules, await make_database(tmp_db), packages=("shop",))
    plain = await started(job, Spawner())
    async with warm(job) as spawner:
        assert isinstance(spawner, WarmSpawner)
        forked = await started(job, spawner)
    with capsys.disabled():
        print(f"\n{what}, {len(job.manifest)} files\n  {shown('from nothing', plain)}\n  {shown('forked', forked)}")
