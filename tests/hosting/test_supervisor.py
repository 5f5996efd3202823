"""Which hosts there are: bounded, fair, started again later and later, and none left at the end."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from perdure.errors import StoreUnavailable
from perdure.runtime.hosts.cause import Cause
from perdure.runtime.hosts.job import TRY_LATER, Entry, Job, Told
from perdure.runtime.hosts.supervisor import HostChange, Supervisor

TURN_S = 0.03


class FakeHost:
    """A host without a process. Ready at once, unless it is told to be something else."""

    def __init__(self, site: Site, release: str) -> None:
        self.site = site
        self.release = release
        self.pid = len(site.started)
        self.says: asyncio.Queue[Told | None] = asyncio.Queue()
        self.over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.drains = True
        self.closed = False

    async def told(self) -> Told | None:
        return await self.says.get()

    def say(self, state: Any, versions: list[int] | None = None, cause: Cause | None = None) -> None:
        self.says.put_nowait(Told(state, versions or [7], cause))

    def drain(self) -> None:
        self.site.log.append(("drain", self.release))
        if self.drains:
            self.end(0)

    def terminate(self) -> None:
        self.site.log.append(("terminate", self.release))
        if self.drains:
            self.end(0)

    def kill(self) -> None:
        self.site.log.append(("kill", self.release))
        self.end(-signal.SIGKILL)

    def end(self, code: int) -> None:
        if not self.over.done():
            self.over.set_result(code)
            self.says.put_nowait(None)

    async def ended(self) -> int:
        return await asyncio.shield(self.over)

    def close(self) -> None:
        self.closed = True


class Site:
    """Starts fake hosts, counts them and keeps what is told."""

    def __init__(self) -> None:
        self.started: list[FakeHost] = []
        self.told: list[HostChange] = []
        self.log: list[tuple[str, str]] = []
        self.most = 0
        self.on_start: Callable[[FakeHost], None] = lambda host: host.say("ready")
        self.now = 0.0
        self.job_fails: Exception | None = None

    async def job(self, release: str) -> Job:
        if self.job_fails is not None:
            raise self.job_fails
        return Job(release, "t", {}, [], [Entry("order", "shop:order", 7, "1.3.0")], "", "", {})

    async def spawn(self, job: Job) -> FakeHost:
        host = FakeHost(self, job.release)
        self.started.append(host)
        self.most = max(self.most, len(self.living))
        self.on_start(host)
        return host

    @property
    def living(self) -> list[FakeHost]:
        return [host for host in self.started if not host.over.done()]

    def kinds(self, release: str) -> list[str]:
        return [change.kind for change in self.told if change.release == release]


@pytest.fixture
async def site() -> Site:
    return Site()


@pytest.fixture
async def make(site: Site) -> AsyncIterator[Callable[..., Supervisor]]:
    made: list[Supervisor] = []

    def supervisor(**settings: Any) -> Supervisor:
        settings = {"turn_s": TURN_S, **settings}
        made.append(Supervisor(site.spawn, site.job, site.told.append, **settings))
        return made[-1]

    yield supervisor
    for one in made:
        await one.close(0.1)
    assert not site.living
    assert all(host.closed for host in site.started)


def busy(host: FakeHost) -> None:
    """Be ready, and have a step that does not end by itself."""
    host.drains = False
    host.say("ready")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(40):
        while not condition():
            await asyncio.sleep(0.005)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_host_is_started_however_often_it_is_wanted(site: Site, make: Callable[..., Supervisor]) -> None:
    supervisor = make()
    for _ in range(3):
        supervisor.ensure("71")
        await settle()
    supervisor.want({"71": 0.0})
    await settle()
    assert [host.release for host in site.started] == ["71"]
    assert site.told == [HostChange("ready", "71", (7,))]
    (info,) = supervisor.hosts
    assert (info.release, info.state) == ("71", "ready")


async def test_the_oldest_waiting_run_chooses(site: Site, make: Callable[..., Supervisor]) -> None:
    supervisor = make(max_hosts=2)
    supervisor.want({"c": 3.0, "a": 1.0, "d": 4.0, "b": 2.0})
    await settle()
    assert [host.release for host in site.started] == ["a", "b"]


async def test_the_least_recently_used_goes_first(site: Site, make: Callable[..., Supervisor]) -> None:
    supervisor = make(max_hosts=2)
    supervisor.want({"a": 1.0, "b": 2.0})
    await until(lambda: len(site.told) == 2)
    supervisor.want({"b": 2.0})  # nobody wants `a` any more
    supervisor.want({"b": 2.0, "c": 3.0})
    await until(lambda: len(site.started) == 3)
    assert site.log == [("drain", "a")]
    assert [host.release for host in site.living] == ["b", "c"]


async def test_a_host_that_still_has_a_step_keeps_its_place(site: Site, make: Callable[..., Supervisor]) -> None:
    supervisor = make(max_hosts=1)
    site.on_start = busy
    supervisor.want({"a": 1.0})
    await settle()
    supervisor.want({"b": 2.0})
    await until(lambda: site.log == [("drain", "a")])
    await asyncio.sleep(3 * TURN_S)
    assert len(site.started) == 1
    site.started[0].end(0)
    await until(lambda: len(site.started) == 2)
    assert site.most == 1


async def test_twenty_versions_share_two_hosts_and_all_advance(site: Site, make: Callable[..., Supervisor]) -> None:
    """None waits for more than one round of the others."""
    supervisor = make(max_hosts=2)
    wanted = {f"r{number}": float(number) for number in range(20)}

    async def poll() -> None:
        while True:
            supervisor.want(wanted)
            await asyncio.sleep(TURN_S / 2)

    polling = asyncio.create_task(poll())
    try:
        await until(lambda: len(site.started) >= 60)
    finally:
        polling.cancel()
    order = [host.release for host in site.started]
    assert site.most == 2
    for start in (0, 20, 40):
        assert len(set(order[start : start + 20])) == 20


async def test_no_room_is_made_before_a_turn_is_over(site: Site, make: Callable[..., Supervisor]) -> None:
    supervisor = make(max_hosts=1, turn_s=0.3)
    supervisor.want({"a": 1.0, "b": 2.0})
    await asyncio.sleep(0.1)
    assert not site.log
    await until(lambda: len(site.started) == 2)


async def test_an_idle_host_leaves_and_comes_back_when_it_is_wanted(
    site: Site, make: Callable[..., Supervisor]
) -> None:
    supervisor = make()
    supervisor.ensure("a")
    await settle()
    supervisor.want({})
    site.started[0].say("idle")
    site.started[0].end(0)
    await until(lambda: not supervisor.hosts)
    await settle()
    assert len(site.started) == 1
    supervisor.want({"a": 1.0})
    await until(lambda: len(site.started) == 2)
    assert site.kinds("a") == ["ready", "ended", "ready"]


async def test_wanted_again_while_it_leaves(site: Site, make: Callable[..., Supervisor]) -> None:
    supervisor = make()
    site.on_start = busy
    supervisor.ensure("a")
    await settle()
    supervisor.stop("a")
    supervisor.want({"a": 1.0})
    await settle()
    assert len(site.started) == 1
    site.started[0].end(0)
    await until(lambda: len(site.started) == 2)


async def test_three_crashes_are_a_failure(
    site: Site, make: Callable[..., Supervisor], caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = make(clock=lambda: site.now)

    def crash(host: FakeHost) -> None:
        host.say("ready")
        asyncio.get_running_loop().call_soon(host.end, -signal.SIGKILL)

    site.on_start = crash
    for number, wait_s in ((1, 0.5), (2, 1.0), (3, 0.0)):
        supervisor.want({"71": 1.0})
        await until(lambda n=number: site.kinds("71").count("ended") == n)  # type: ignore[misc]
        await settle()
        supervisor.want({"71": 1.0})
        await settle()
        assert len(site.started) == number  # later and later
        site.now += wait_s
    failed = [change for change in site.told if change.kind == "failed"]
    assert failed[0].cause is not None
    assert str(failed[0].cause.error()) == (
        "the host of release 71 exited with signal 9 (3 times in 10 min); its runs are parked."
    )
    assert len(failed) == 2  # also to what was wanted after it
    assert "exited with signal 9" in caplog.text
    site.now += 600
    site.on_start = lambda host: host.say("ready")
    supervisor.want({"71": 1.0})
    await until(lambda: len(site.started) == 4)


async def test_crashes_long_ago_do_not_count(site: Site, make: Callable[..., Supervisor]) -> None:
    supervisor = make(clock=lambda: site.now)
    for number in range(1, 6):
        supervisor.want({"71": 1.0})
        await until(lambda n=number: len(site.started) == n)  # type: ignore[misc]
        await settle()
        site.started[-1].end(1)
        await until(lambda n=number: site.kinds("71").count("ended") == n)  # type: ignore[misc]
        site.now += 400
    assert "failed" not in site.kinds("71")


async def test_what_cannot_be_loaded_is_tried_again_later_and_told_meanwhile(
    site: Site, make: Callable[..., Supervisor]
) -> None:
    supervisor = make(clock=lambda: site.now)
    cause = Cause("environment_mismatch", "order@1.3.0", "httpx (recorded 0.27.0), which is not installed")

    def fail(host: FakeHost) -> None:
        host.say("failed", [7], cause)
        host.end(0)

    site.on_start = fail
    supervisor.want({"71": 1.0})
    await until(lambda: site.kinds("71") == ["failed", "ended"])
    await settle()
    supervisor.want({"71": 1.0})
    await settle()
    assert site.told[-1] == HostChange("failed", "71", (7,), cause)
    assert len(site.started) == 1
    site.now += 5
    supervisor.want({"71": 1.0})
    await until(lambda: len(site.started) == 2)
    await until(lambda: site.kinds("71").count("ended") == 2)
    site.now += 5
    supervisor.want({"71": 1.0})
    await settle()
    assert len(site.started) == 2
    site.now += 5
    site.on_start = lambda host: host.say("ready")  # it was installed
    supervisor.want({"71": 1.0})
    await until(lambda: site.kinds("71")[-1] == "ready")


async def test_a_host_that_carries_only_some_versions_goes_on(site: Site, make: Callable[..., Supervisor]) -> None:
    supervisor = make()
    cause = Cause("version_load_failed", "order@1.3.0", "KeyError")

    def some(host: FakeHost) -> None:
        host.say("failed", [8], cause)
        host.say("ready", [7])

    site.on_start = some
    supervisor.ensure("71")
    await until(lambda: site.kinds("71") == ["failed", "ready"])
    assert [info.state for info in supervisor.hosts] == ["ready"]


async def test_a_host_that_is_never_ready_is_killed(site: Site, make: Callable[..., Supervisor]) -> None:
    supervisor = make(start_s=0.05)
    site.on_start = lambda host: None
    supervisor.ensure("71")
    await until(lambda: "ended" in site.kinds("71"))
    assert site.log == [("kill", "71")]
    cause = site.told[0].cause
    assert cause is not None
    assert "was not ready within 0.05 s" in str(cause.error())


async def test_a_database_that_is_away_is_no_crash(site: Site, make: Callable[..., Supervisor]) -> None:
    supervisor = make(clock=lambda: site.now)
    site.on_start = lambda host: host.end(TRY_LATER)
    for number in range(1, 6):
        supervisor.want({"71": 1.0})
        await until(lambda n=number: site.kinds("71").count("ended") == n)  # type: ignore[misc]
        await settle()
        site.now += 2
    assert set(site.kinds("71")) == {"ended"}


async def test_a_job_that_cannot_be_made_is_tried_again(
    site: Site, make: Callable[..., Supervisor], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    supervisor = make()
    site.job_fails = StoreUnavailable("away")
    supervisor.ensure("71")
    await settle()
    assert not supervisor.hosts
    site.job_fails = None
    await until(lambda: site.kinds("71") == ["ready"])
    assert "no host can be started for release 71 now: away" in caplog.text


async def test_where_no_process_can_be_started_that_is_what_stands_in_the_way(
    site: Site, make: Callable[..., Supervisor]
) -> None:
    supervisor = make()
    site.job_fails = PermissionError("Operation not permitted")
    supervisor.ensure("71")
    await settle()
    assert str(site.told[0].cause.error(2)) == (  # type: ignore[union-attr]
        "release 71 could not be loaded: no version host can be started: Operation not permitted. 2 runs are parked. "
        "Fix the environment (perdure versions host-env), or upgrade them."
    )
    supervisor.ensure("71")  # told at once to who asks again
    assert len(site.kinds("71")) == 2


async def test_at_the_end_all_are_asked_and_who_does_not_leave_is_killed(
    site: Site, make: Callable[..., Supervisor]
) -> None:
    supervisor = make()
    supervisor.want({"a": 1.0, "b": 2.0})
    await settle()
    site.started[1].drains = False
    await supervisor.close(0.1)
    assert site.log == [("terminate", "a"), ("terminate", "b"), ("kill", "b")]
    assert not supervisor.hosts
    supervisor.want({"c": 3.0})
    await settle()
    assert len(site.started) == 2


async def test_a_host_that_is_being_started_at_the_end_is_ended_too(
    site: Site, make: Callable[..., Supervisor]
) -> None:
    supervisor = make()
    supervisor.ensure("a")
    await supervisor.close(1.0)
    assert not site.living
