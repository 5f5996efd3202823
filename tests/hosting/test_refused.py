"""A version that may not be loaded is told as one that cannot be, and no process is started for it."""

from __future__ import annotations

import asyncio

from perdure.runtime.hosts.cause import Cause
from perdure.runtime.hosts.job import Job
from perdure.runtime.hosts.process import HostProcess
from perdure.runtime.hosts.supervisor import NOBODY_WAITS, HostChange, Supervisor


async def test_what_may_not_be_loaded_is_told_without_a_process() -> None:
    cause = Cause("signature_invalid", "order@1.3.0", "order@1.3.0 is not signed by a trusted key (key id k2).")
    told: list[HostChange] = []

    async def job(release: str) -> Job:
        return Job(release, "t", {}, [], [], "", "", {}, refused={7: cause})

    async def spawn(_job: Job) -> HostProcess:
        raise AssertionError("a process was started")

    supervisor = Supervisor(spawn, job, told.append)
    supervisor.ensure("71")
    async with asyncio.timeout(40):
        while supervisor.hosts or not told:
            await asyncio.sleep(0.01)
    assert told == [HostChange("failed", "71", (7,), cause)]
    supervisor.want({"71": NOBODY_WAITS})  # its runs are parked already
    assert len(told) == 1
    supervisor.want({})
    supervisor.ensure("71")  # what is known is told for a while, before anybody looks again
    assert [change.cause for change in told] == [cause, cause]
    await supervisor.close(0)


async def test_what_the_host_of_its_release_found_holds_a_version_back() -> None:
    cause = Cause("version_load_failed", "order@1.3.0", "KeyError")
    told: list[HostChange] = []
    clock = [0.0]
    asked: list[str] = []

    async def job(release: str) -> Job:
        asked.append(release)
        return Job(release, "t", {}, [], [], "", "", {}, refused={7: cause})

    async def spawn(_job: Job) -> HostProcess:
        raise AssertionError("a process was started")

    supervisor = Supervisor(spawn, job, told.append, clock=lambda: clock[0])
    supervisor.hold_back("71/7", HostChange("failed", "71", (7,), cause))
    supervisor.want({"71/7": 1.0})
    await asyncio.sleep(0.05)
    assert told == [HostChange("failed", "71/7", (7,), cause)]
    for now, times in ((4.9, 0), (5.0, 1), (14.9, 1), (15.0, 2)):  # later and later
        clock[0] = now
        supervisor.want({"71/7": NOBODY_WAITS})
        await asyncio.sleep(0.05)
        assert asked == ["71/7"] * times
    await supervisor.close(0)
