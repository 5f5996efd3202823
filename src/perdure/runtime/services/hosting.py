"""Sees to it that runs of versions that nobody was deployed with are executed, or parked with what stands in the way.

A run needs the code of its version. A worker that carries it natively is given a moment; then a version host is started
for it (`perdure.runtime.hosts`). What no host can load is parked, never run on other code, and goes on by itself once
the version can be loaded again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from perdure.errors import VersionLoadFailed
from perdure.model.claim import ClaimRequest, park
from perdure.model.code import UNBOUND, code_of, parts_of
from perdure.model.write import Committed
from perdure.runtime.connection import Answer
from perdure.runtime.hosts.building import Builder
from perdure.runtime.hosts.cause import Cause
from perdure.runtime.hosts.environments import Environments
from perdure.runtime.hosts.forkserver import WarmSpawner
from perdure.runtime.hosts.process import Spawner
from perdure.runtime.hosts.sharing import Sharing, alone, release_id
from perdure.runtime.hosts.supervisor import NOBODY_WAITS, HostChange, Supervisor
from perdure.runtime.outside import unparking
from perdure.runtime.service import Service
from perdure.store.catalog.demand import FOR_CODE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any

    from perdure.model.claim import Claimed
    from perdure.model.event import Event
    from perdure.model.run import RunRow
    from perdure.runtime.host import Host
    from perdure.runtime.hosts.job import Job
    from perdure.runtime.hosts.plan import Plan
    from perdure.store.catalog.base import HostedRelease, StoredDefinition
    from perdure.store.catalog.demand import Demand

logger: logging.Logger = logging.getLogger("perdure.hosts")
_TICK_S: Final = 0.5
_LOOK_S: Final = 5.0
"""How often a worker looks when no hint says that something has changed."""
_BLIND_LOOK_S: Final = 8.0
"""The same where no hints come: a fleet that is idle is not to ask for more than it has to."""
_APART_S: Final = 0.3
"""Workers that notice the same run are this far apart at most, so that not all of them start a host for it."""
_BATCH: Final = 200
_NEVER: Final = 2**63 - 1


class Hosting(Service):
    """See the module.

    Args:
        host: the worker's runs and services.
        plan: how hosts are made.
        worker_id: returns the id of the worker.
        only: the one run that the worker is for, if it is for one.
    """

    def __init__(self, host: Host, plan: Plan, worker_id: Callable[[], str], *, only: str | None = None) -> None:
        super().__init__(host.loop, _TICK_S)
        self._host = host
        self._plan = plan
        self._worker_id = worker_id
        self._only = only
        self._warm = WarmSpawner(Spawner())
        folder = plan.environments
        self._environments = None if folder is None else Environments(self._warm, Builder(folder))
        spawn = self._environments or self._warm
        self._supervisor = Supervisor(spawn, self._job, self._told, max_hosts=max(plan.max_hosts, 1))
        self._sharing = Sharing()
        self._given: dict[str, HostedRelease] = {}
        """What hosts were started with, by name."""
        self._apart_s = random.random() * _APART_S
        self._hints = host.store.capabilities.hints
        self._seen = -1
        self._looked_at = -inf
        self._due_at = _NEVER
        """When the next run becomes due that needs other code."""
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin; let go on what waits for code that this worker has."""
        super().start()
        own = {version.id for version in self._host.carried.versions.values()}
        if own:
            self._do(self._unpark(own))

    async def stop(self) -> None:
        """End all hosts, in good order."""
        await super().stop()
        if self._environments is not None:
            await self._environments.close()
        await self._supervisor.close(self._host.settings.grace_us / 1_000_000)
        await self._warm.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def tick(self) -> None:
        """Look what is in demand, where something may have changed; say which releases need a host."""
        host = self._host
        now = host.loop.time()
        count = host.store.change_count()
        told = self._hints and count != self._seen
        every_s = _LOOK_S if self._hints else _BLIND_LOOK_S
        quiet = not told and now - self._looked_at < every_s and host.store.now() < self._due_at
        if quiet and not self._supervisor.hosts:
            return
        self._seen, self._looked_at = count, now
        demand: Demand = await host.reader.call(
            host.loop, host.store.catalog.demand, host.settings.queues, host.store.now()
        )
        wanted: dict[str, float] = {}
        for code, since in await self._foreign(demand):
            name = await self._host_of(parts_of(code)[0])
            if name is not None:
                wanted[name] = min(since, wanted.get(name, NOBODY_WAITS))
        if self._plan.max_hosts:
            self._supervisor.want(wanted)
        else:
            for name in wanted:
                self._do(self._park_all(name, ()))

    async def _foreign(self, demand: Demand) -> list[tuple[str, float]]:
        """Return the codes that only a host can serve, each with since when it is wanted."""
        own = {version.id for version in self._host.carried.versions.values()}
        now = self._host.store.now()
        coming = [at for code, at in demand.later.items() if parts_of(code)[0] not in (UNBOUND, *own)]
        self._due_at = min(coming, default=_NEVER)
        found: list[tuple[str, float]] = []
        for code, since in demand.due.items():
            version_id, _ = parts_of(code)
            if not version_id or version_id in own:
                continue
            patience_s = self._plan.foreign_delay_s if version_id in demand.carried else self._apart_s
            if now - since >= patience_s * 1_000_000 and await self._is_ours(version_id):
                found.append((code, since / 1_000_000))
            else:
                self._seen = -1  # look again soon
        for code in demand.parked - demand.due.keys():
            version_id, _ = parts_of(code)
            if version_id and version_id not in own and await self._is_ours(version_id):
                found.append((code, NOBODY_WAITS))
        return found

    async def _is_ours(self, version_id: int) -> bool:
        definition = await self._definition(version_id)
        if definition is None:
            return False
        hosted = await self._hosted(definition.release_id)
        workflows = frozenset(self._host.workflows)
        return hosted is not None and self._plan.is_own(definition, hosted.stored.release.roots, workflows)

    async def _host_of(self, version_id: int) -> str | None:
        """Return the name of the host to ask for a version."""
        definition = await self._definition(version_id)
        hosted = None if definition is None else await self._hosted(definition.release_id)
        if definition is not None and hosted is not None and all(one.id != version_id for one in hosted.definitions):
            hosted = await self._hosted(definition.release_id, anew=True)
        if hosted is None:
            return None
        ready = {host.release: host.versions for host in self._supervisor.hosts if host.state == "ready"}
        return self._sharing.host_of(version_id, hosted, ready)

    async def _definition(self, version_id: int) -> StoredDefinition | None:
        host, asked = self._host, ("version", version_id)
        found: StoredDefinition | None = host.definitions.find(asked)
        if found is None:
            found = await host.reader.call(host.loop, host.store.catalog.definition, version_id)
            host.definitions.learn(asked, found)
        return found

    async def _hosted(self, release_id: int, *, anew: bool = False) -> HostedRelease | None:
        host, asked = self._host, ("release", release_id)
        found: HostedRelease | None = None if anew else host.definitions.find(asked)
        if found is None:
            found = await host.reader.call(host.loop, host.store.catalog.hosted, release_id)
            host.definitions.learn(asked, found)
        return found

    async def _job(self, name: str) -> Job:
        hosted = await self._hosted(release_id(name), anew=True)
        if hosted is None or not hosted.definitions:
            message = f"release {name} is not stored any more"
            raise VersionLoadFailed(message)
        alive = {host.release for host in self._supervisor.hosts}
        self._given = {host: held for host, held in self._given.items() if host in alive} | {name: hosted}
        return self._plan.job(hosted, name, self._sharing.members(name, hosted), self._worker_id())

    # -- what became of hosts ------------------------------------------------------------------------------------

    def _told(self, change: HostChange) -> None:
        if change.kind == "ready":
            hosted = self._given.get(change.release)
            if hosted is not None:
                self._sharing.left_behind(change.release, hosted, frozenset(change.versions))
            self._do(self._unpark(change.versions))
        elif change.kind == "ended":
            self._seen = -1  # look again: what became due as it left has no host now
        elif change.kind == "failed":
            self._do(self._park_all(change.release, change.versions, change.cause))
            for version_id in change.versions:
                self._supervisor.hold_back(alone(change.release, version_id), change)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _park_all(self, name: str, versions: Iterable[int], cause: Cause | None = None) -> None:
        """Park the due runs of versions; of all that the host of this name carries where none is named."""
        hosted = await self._hosted(release_id(name))
        members = [] if hosted is None else self._sharing.members(name, hosted)
        for stored in members:
            if stored.id in versions or not tuple(versions):
                version = f"{stored.definition.workflow}@{stored.labels[-1].text}"
                why = cause or Cause(
                    VersionLoadFailed.code, version, "no worker was deployed with it, and max_hosts is 0"
                )
                if why.code == VersionLoadFailed.code:
                    why = why._replace(version=version)
                await self._park(code_of(stored.definition.workflow, stored.id), why)

    async def _park(self, code: str, cause: Cause) -> None:
        host = self._host
        reason = FOR_CODE + str(cause.error())

        def judge(row: RunRow, recent: tuple[Event, ...], now: int) -> Claimed:
            return park(
                row, recent, self._worker_id(), now, host.commit_ids.take(), reason=reason,
                remedy=f"perdure upgrade plan --id {row.id} --to VERSION",
            )  # fmt: skip

        request = ClaimRequest(self._worker_id(), host.settings.queues, (code,), _BATCH, only=self._only)
        total = 0
        while True:
            claims = await host.reader.call(host.loop, host.store.claim, request, judge)
            for one in claims.taken:
                host.waiters.tell(one.row.id, None)
            total += len(claims.taken)
            if len(claims.taken) < _BATCH:
                break
        if total:
            logger.error("%s", cause.error(total))

    async def _unpark(self, versions: Iterable[int]) -> None:
        host = self._host
        writes = await host.reader.call(
            host.loop, partial(unparking, host.store, frozenset(versions), self._worker_id(), host.commit_ids.take)
        )
        answers = []
        for write in writes:
            answer = Answer(host.loop)
            host.writer.submit(write, answer)
            answers.append(answer.future)
        done = sum(isinstance(outcome, Committed) for outcome in await asyncio.gather(*answers))
        if done:
            runs = "1 parked run goes" if done == 1 else f"{done} parked runs go"
            logger.info("%s on: the code of their versions can be run again", runs)
