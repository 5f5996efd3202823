"""Decides which version hosts there are: starts, bounds and ends them. It knows no database.

It is told which releases are wanted, because runs of theirs are ready and no worker has their code, and tells what
became ready, what failed and why, and what ended.

INV-1  There are never more than ``max_hosts`` processes, those that are leaving included.
INV-2  Nobody starves: who has waited longest is next, and a host keeps its place for a turn at most while others wait.
INV-3  A host that has to make room finishes its steps. One that crashes is started again later and later, and after the
       third time within the window its release has failed.
INV-4  After `close` no host is left.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from perdure.errors import HostCrashed, PerdureError, StoreError, VersionLoadFailed
from perdure.runtime.hosts.cause import Cause
from perdure.runtime.hosts.job import TRY_LATER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from perdure.runtime.hosts.job import Job
    from perdure.runtime.hosts.process import HostProcess

logger: logging.Logger = logging.getLogger("perdure.hosts")
_MOST_CRASHES: Final = 3
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 300.0
_LOAD_WAIT_S: Final = 5.0
_LATER_S: Final = 2.0
_LAST_WORDS_S: Final = 0.5
NOBODY_WAITS: Final = float("inf")
"""Since when a release is wanted whose runs are all parked: it is tried, so that they go on once they can."""


class HostChange(NamedTuple):
    """What became of a host.

    Attributes:
        kind: ``ready`` to claim; ``failed``: these versions cannot run now; ``ended``.
        release: the release it is of.
        versions: the versions it is about; all of the release where it is empty.
        cause: why they failed.
    """

    kind: Literal["ready", "failed", "ended"]
    release: str
    versions: tuple[int, ...] = ()
    cause: Cause | None = None


class HostInfo(NamedTuple):
    """A host there is."""

    release: str
    pid: int
    state: Literal["starting", "ready", "leaving"]
    versions: frozenset[int] = frozenset()


class _Hosted:
    """One host and what is known of it."""

    def __init__(self, release: str, now: float) -> None:
        self.release = release
        self.state: Literal["starting", "ready", "leaving"] = "starting"
        self.process: HostProcess | None = None
        self.since = now
        self.used_at = now
        self.idle = False
        """Whether it said that it leaves because there is nothing to do."""
        self.was_ready = False
        self.versions: frozenset[int] = frozenset()
        self.failed: list[HostChange] = []
        self.task: asyncio.Task[None] | None = None


class _Record:
    """What happened to a release before."""

    def __init__(self) -> None:
        self.crashes: deque[float] = deque()
        self.failures = 0
        self.not_before = 0.0
        self.verdict: tuple[HostChange, ...] = ()
        """What is told instead of starting a host."""


class Supervisor:
    """See the module. All methods run on the worker's loop.

    Args:
        spawn: starts the process for a job.
        job: makes the job of a release.
        tell: called with each change.
        max_hosts: processes there may be.
        turn_s: how long a host keeps its place while others wait.
        start_s: how long a host may take to be ready.
        window_s: how long a crash is remembered.
        clock: seconds that only grow.
    """

    def __init__(
        self, spawn: Callable[[Job], Awaitable[HostProcess]], job: Callable[[str], Awaitable[Job]],
        tell: Callable[[HostChange], None], *, max_hosts: int = 4, turn_s: float = 2.0, start_s: float = 60.0,
        window_s: float = 600.0, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._spawn = spawn
        self._job = job
        self._tell = tell
        self._max_hosts = max_hosts
        self._turn_s = turn_s
        self._start_s = start_s
        self._window_s = window_s
        self._clock = clock
        self._hosts: dict[str, _Hosted] = {}
        self._wanted: dict[str, float] = {}
        self._waiting: dict[str, float] = {}
        """Since when a wanted release has had no host."""
        self._records: dict[str, _Record] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def hosts(self) -> list[HostInfo]:
        """The hosts there are."""
        return [
            HostInfo(one.release, one.process.pid if one.process is not None else 0, one.state, one.versions)
            for one in self._hosts.values()
        ]

    def want(self, wanted: Mapping[str, float]) -> None:
        """Say which releases have ready runs that only a host can run; replaces what was said before.

        Args:
            wanted: release to when its oldest ready run became due, by any clock; `NOBODY_WAITS` where all are parked.
        """
        self._wanted = {}
        now = self._clock()
        for release, since in wanted.items():
            self._want(release, since, now)
        for release in self._waiting.keys() - self._wanted.keys():
            del self._waiting[release]
        self._steer()

    def ensure(self, release: str, since: float = 0.0) -> None:
        """Want one more release."""
        self._want(release, since, self._clock())
        self._steer()

    def _want(self, release: str, since: float, now: float) -> None:
        self._wanted[release] = since
        host = self._hosts.get(release)
        if host is not None:
            host.used_at = now
        elif not self._closed:
            self._waiting.setdefault(release, now)
            record = self._records.get(release)
            if record is not None and now < record.not_before and since < NOBODY_WAITS:
                for change in record.verdict:
                    self._tell(change)

    def hold_back(self, release: str, change: HostChange) -> None:
        """Take it that a release has failed, as one of which the same was found by the host of another."""
        if release != change.release:
            self._put_off(release, [change._replace(release=release)])

    def stop(self, release: str) -> None:
        """Let the host of a release finish what it has and leave."""
        host = self._hosts.get(release)
        if host is not None:
            self._leave(host)

    async def close(self, grace_s: float = 30.0) -> None:
        """End all hosts: ask them, wait for ``grace_s``, then kill; return when none is left."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        hosts = list(self._hosts.values())
        for host in hosts:
            host.state = "leaving"
            if host.process is not None:
                host.process.terminate()
        tasks = [host.task for host in hosts if host.task is not None]
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=grace_s)
            for host in hosts:
                if host.task in left and host.process is not None:
                    logger.warning("the host of release %s did not leave in time; it is killed", host.release)
                    host.process.kill()
                elif host.task in left:
                    host.task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- which hosts there are -----------------------------------------------------------------------------------

    def _steer(self) -> None:
        """Start what has waited longest while there is room; else let somebody make room."""
        if self._closed:
            return
        now = self._clock()
        queue = sorted(self._waiting, key=lambda release: (self._waiting[release], self._wanted.get(release, 0.0)))
        leaving = sum(host.state == "leaving" for host in self._hosts.values())
        wake_at: list[float] = []
        for release in queue:
            record = self._records.get(release)
            if release in self._hosts:
                continue  # it leaves, and comes back when it is its turn
            if record is not None and now < record.not_before:
                wake_at.append(record.not_before)
            elif len(self._hosts) < self._max_hosts:
                self._start(release)
            elif leaving:
                leaving -= 1  # its place is for this one
            else:
                wake_at += self._make_room(now)
        if wake_at:
            self._wake(min(wake_at) - now)

    def _make_room(self, now: float) -> list[float]:
        """Let the least recently used host leave whose turn is over; return when another may be asked."""
        ready = [host for host in self._hosts.values() if host.state == "ready"]
        ready.sort(key=lambda host: (host.release in self._wanted, host.used_at, host.since))
        for host in ready:
            if now - host.since >= self._turn_s:
                self._leave(host)
                return []
        return [host.since + self._turn_s for host in ready]

    def _wake(self, after_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(after_s, 0.01), self._steer)

    def _start(self, release: str) -> None:
        self._waiting.pop(release, None)
        host = self._hosts[release] = _Hosted(release, self._clock())
        host.task = asyncio.get_running_loop().create_task(self._keep(host), name=f"perdure-host-{release}")

    def _leave(self, host: _Hosted) -> None:
        if host.state == "ready" and host.process is not None:
            host.state = "leaving"
            host.process.drain()

    # -- the life of one -----------------------------------------------------------------------------------------

    async def _keep(self, host: _Hosted) -> None:
        code: int | None = None
        try:
            job = await self._job(host.release)
            for version_id, cause in job.refused.items():
                self._fail(host, (version_id,), cause)
            if job.entries:
                host.process = await self._spawn(job)
        except StoreError as error:
            logger.warning("no host can be started for release %s now: %s", host.release, error)
            self._postpone(host.release, _FIRST_WAIT_S)
        except (OSError, PerdureError) as error:
            detail = f"no version host can be started: {error}"
            self._fail(host, (), Cause(VersionLoadFailed.code, f"release {host.release}", detail))
            self._put_off(host.release, host.failed)
        else:
            if host.process is None:  # nothing of it may be loaded
                self._put_off(host.release, host.failed)
            else:
                if self._closed:
                    host.process.terminate()
                code = await self._accompany(host, host.process, job)
        finally:
            del self._hosts[host.release]
            # One that left because nothing was due is wanted again when somebody has looked and says so.
            if host.release in self._wanted and not host.idle and not self._closed:
                self._waiting[host.release] = self._clock()
        if code is not None:
            self._ended(host, code)
        self._steer()

    async def _accompany(self, host: _Hosted, process: HostProcess, job: Job) -> int:
        """Take in what a host tells until it has ended; return its exit code."""
        listening = asyncio.ensure_future(self._listen(host, process))
        ending = asyncio.ensure_future(process.ended())
        try:
            await asyncio.wait([ending], timeout=self._start_s)
            if not ending.done() and host.state == "starting":
                process.kill()
                cause = Cause(VersionLoadFailed.code, job.version, f"it was not ready within {self._start_s:g} s")
                self._fail(host, (), cause)
            code = await ending
            # A process of a step may hold the pipe open; what the host said is there already.
            await asyncio.wait([listening], timeout=_LAST_WORDS_S)
            return code
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            process.close()

    async def _listen(self, host: _Hosted, process: HostProcess) -> None:
        while (told := await process.told()) is not None:
            if told.state == "failed":
                self._fail(host, tuple(told.versions), told.cause)
            elif told.state == "ready":
                self._ready(host, tuple(told.versions))
            else:
                host.idle = True
                host.state = "leaving"

    def _ready(self, host: _Hosted, versions: tuple[int, ...]) -> None:
        host.was_ready, host.versions = True, frozenset(versions)
        if host.state == "starting":
            host.state, host.since = "ready", self._clock()
        record = self._records.get(host.release)
        if record is not None:
            record.failures, record.verdict = 0, ()
        self._tell(HostChange("ready", host.release, versions))
        self._steer()

    def _fail(self, host: _Hosted, versions: tuple[int, ...], cause: Cause | None) -> None:
        change = HostChange("failed", host.release, versions, cause)
        host.failed.append(change)
        self._tell(change)

    def _ended(self, host: _Hosted, code: int) -> None:
        self._tell(HostChange("ended", host.release))
        if self._closed or host.idle or host.state == "leaving":
            return
        if code == TRY_LATER:
            self._postpone(host.release, _LATER_S)
        elif host.failed and not host.was_ready:
            self._put_off(host.release, host.failed)
        else:
            self._crashed(host.release, code)

    def _put_off(self, release: str, verdict: list[HostChange]) -> None:
        """Try it again, later and later: what is missing may come."""
        record = self._records.setdefault(release, _Record())
        record.failures += 1
        record.verdict = tuple(verdict)
        self._postpone(release, min(_LOAD_WAIT_S * 2 ** (record.failures - 1), _LONGEST_WAIT_S))

    def _crashed(self, release: str, code: int) -> None:
        record = self._records.setdefault(release, _Record())
        record.crashes.append(self._clock())
        if not self._crashed_lately(release, _MOST_CRASHES):
            logger.warning("the host of release %s exited with %s", release, _exit(code))
            self._postpone(release, _FIRST_WAIT_S * 2 ** (len(record.crashes) - 1))
            return
        detail = f"exited with {_exit(code)} ({len(record.crashes)} times in {self._window_s / 60:g} min)"
        cause = Cause(HostCrashed.code, f"release {release}", detail)
        record.verdict = (HostChange("failed", release, (), cause),)
        record.not_before = record.crashes[0] + self._window_s
        logger.error("%s", cause.error())
        self._tell(record.verdict[0])

    def _crashed_lately(self, release: str, times: int) -> bool:
        crashes = self._records[release].crashes
        while crashes and self._clock() - crashes[0] > self._window_s:
            crashes.popleft()
        return len(crashes) >= times

    def _postpone(self, release: str, wait_s: float) -> None:
        record = self._records.setdefault(release, _Record())
        record.not_before = self._clock() + wait_s


def _exit(code: int) -> str:
    if code >= 0:
        return f"code {code}"
    with suppress(ValueError):
        return f"signal {signal.Signals(-code).value}"
    return f"signal {-code}"
