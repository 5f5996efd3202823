"""A worker: claims due runs, executes them, keeps its lease, and stops in good order.

Its id is unique per process start. It takes only runs whose code it has. The periodic work has a file of its own per
service in `perdure.runtime.services`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import TYPE_CHECKING

from perdure.errors import StoreCorrupt, StoreError, StoreUnavailable
from perdure.model.claim import Claimant, Claimed, claim_draft
from perdure.model.code import UNBOUND
from perdure.model.event import Draft
from perdure.model.status import Status
from perdure.runtime.adoption import Adoption
from perdure.runtime.claimer import Claimer
from perdure.runtime.closing import park
from perdure.runtime.enrolment import live_row
from perdure.runtime.ids import uuid7
from perdure.runtime.lease import Lease, boot_time
from perdure.runtime.resident import ResidentRun
from perdure.runtime.returning import Returns
from perdure.runtime.services.eviction import Eviction
from perdure.runtime.services.hosting import Hosting
from perdure.runtime.services.poll import Poll
from perdure.runtime.services.sweeper import Sweeper
from perdure.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.model.event import Event
    from perdure.model.run import Heartbeat, RunRow
    from perdure.model.write import Create
    from perdure.runtime.connection import Answer
    from perdure.runtime.host import Host
    from perdure.runtime.hosts.plan import Plan
    from perdure.runtime.service import Service

logger: logging.Logger = logging.getLogger("perdure.worker")
_PENDING: str = Status.PENDING.value
ISOLATION_S = 10.0
"""How long a worker takes nothing new in order to be alone with a run that may kill it."""
_HAND_BACK_S, _GOODBYE_S = 5.0, 2.0  # how long it waits for the database when it leaves: with its runs, and without


class Worker:
    """See the module. All methods run on the engine's event loop."""

    def __init__(
        self,
        host: Host,
        name: str | None = None,
        *,
        only: str | None = None,
        parent: str | None = None,
        plan: Plan | None = None,
    ) -> None:
        self.host = host
        self._only = only
        self._parent = parent
        self._be_somebody()
        self.name: str = name or f"{socket.gethostname()}:{os.getpid()}"
        self.lease: Lease = Lease(host.store, self.id, host.settings.lease_us)
        self.running: bool = False
        self.stopping: bool = False
        self.stop_by: float = float("inf")
        """When steps in flight are no longer waited for; may be brought forward while it stops."""
        self._rejoining: asyncio.Task[None] | None = None
        self._services: list[Service] = [
            Poll(host, lambda: self.id, self.want_claim), Sweeper(host, self.want_claim), Eviction(host)
        ]  # fmt: skip
        if plan is not None:
            self._services.append(Hosting(host, plan, lambda: self.id, only=only))
        self._claim_wanted = False
        self._claimer = Claimer(host, self.want_claim)
        self._starved = False
        """Whether a claim was wanted while there was no room, here or in the limits of a queue."""
        self._claiming: asyncio.Task[None] | None = None
        self._returns = Returns(host)
        self._on_the_way: set[str] = set()
        """Runs that are ours, or may be, and are not here yet."""
        self._suspect: str | None = None
        """A run its last workers died of, given back until it can be executed with nothing else here."""
        self._suspect_until = 0.0

    def _be_somebody(self) -> None:
        self.id: str = uuid7()
        """Of this incarnation: a worker that was declared dead goes on under a new one."""
        self._claimant = Claimant(self.id, self.host.python, self.host.settings.max_deaths)

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register, begin to beat, and begin to claim."""
        await self._enroll()
        self.host.on_room = self._room_made
        self.host.on_created, self.host.on_message = self.want_claim, self.message_sent
        self.running = True
        for service in self._services:
            service.start()
        self.want_claim()

    async def _enroll(self) -> None:
        """Insert this incarnation's row and begin to beat for it."""
        host = self.host
        queues = () if self._only else host.settings.queues
        row = live_row(self.id, self.name, queues, host, self._parent)
        sent = boot_time()
        await host.reader.call(host.loop, host.store.register, row)
        self.lease.granted(sent)
        host.lease = self.lease
        self.lease.start(host.loop, self._beaten, Watchdog(host.loop).look)

    async def stop(self, grace_s: float) -> None:
        """Stop claiming, let steps in flight finish within ``grace_s``, hand the rest back, say good-bye."""
        if not self.running:
            return
        self.running, self.stopping = False, True
        self.stop_by = min(self.stop_by, boot_time() + grace_s)
        try:
            await self._leave_in_order()
        finally:  # whatever happens, it must not seem alive: others wait for its runs
            self.lease.stop()
            self.host.threads.close(1.0)

    async def _leave_in_order(self) -> None:
        self._claimer.stop()
        for service in self._services:
            await service.stop()
        if self._rejoining is not None:
            self._rejoining.cancel()
        under_way = [task for task in (self._claiming, self._rejoining) if task is not None]
        await asyncio.gather(*under_way, return_exceptions=True)
        await self._drain()
        for run in list(self.host.runs.values()):
            run.hand_back("the worker stops")
        deadline = boot_time() + _HAND_BACK_S
        while self.host.runs and boot_time() < deadline and self.host.writer.crash is None:
            await asyncio.sleep(0.005)
        for run in list(self.host.runs.values()):
            run.drop("it could not be handed back")
        await self._say_goodbye()

    async def _drain(self) -> None:
        """Wait for steps in flight; runs without any are handed back at once."""
        while boot_time() < self.stop_by and self.host.writer.crash is None and not self.lease.lost:
            for run in list(self.host.runs.values()):
                run.stop_starting()
            if not self.host.runs:
                return
            await asyncio.sleep(0.01)

    async def _say_goodbye(self) -> None:
        beating = self.lease.beating
        self.lease.stop()
        if not beating or self.lease.lost or self.host.writer.crash is not None:
            return
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await self.host.reader.call(self.host.loop, self.host.store.heartbeat, self.id, 0)
        except (StoreError, TimeoutError) as error:
            logger.warning("could not say good-bye, the lease will run out: %s", str(error) or "no answer")

    @property
    def failure(self) -> str | None:
        """Why this worker cannot go on; None while it can."""
        rejoining = self._rejoining
        if rejoining is not None and rejoining.done() and not rejoining.cancelled() and rejoining.exception():
            return f"it cannot register again: {rejoining.exception()}"
        if self.running and not self.lease.lost and not self.lease.beating:
            return "the heartbeat has ended"
        return None

    # -- taking runs ---------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether another run may become active here now."""
        return self.running and self._suspect is None and self.host.free > 0 and self.lease.holds()

    def carries(self, workflow: str, version_id: int) -> bool:
        """Whether a run bound so may be executed here. One that is bound to none is bound by a claim of its own."""
        carried = self.host.carried
        version = carried.versions.get(workflow)
        if version is None:
            return version_id == UNBOUND and workflow in self.host.workflows and not carried.displaced
        return version.id == version_id

    def claim_draft(self, now: int, version: str) -> Draft:
        """Return the event by which this worker claims a run in the transaction that creates it."""
        return claim_draft(self._claimant, _PENDING, version, now)

    def create(self, create: Create, answer: Answer) -> None:
        """Record a run that is claimed in the same transaction, and execute it once it is recorded."""
        self.host.reserved += 1
        self._on_the_way.add(create.row.id)
        self.host.writer.submit(create, Adoption(self, answer))

    def created(self, create: Create, *, recorded: bool) -> None:
        """Execute a run this worker has just created and claimed; or forget it, if it was there already."""
        self.host.reserved -= 1
        self._on_the_way.discard(create.row.id)
        if recorded and self._is_ours(create.row.owner):
            self.host.turns.join(self._begin(create.row, 1, create.events))

    def message_sent(self, run_id: str) -> None:
        """Look at a run's inbox now, if it is here; else look for runs to claim."""
        run = self.host.runs.get(run_id)
        if run is not None:
            run.look_at_inbox()
        else:
            self.want_claim()

    def _room_made(self) -> None:
        """A run has left or become idle: look for another, if there was none to spare or there are runs to isolate."""
        if self._starved or self._suspect is not None:
            self.want_claim()

    def want_claim(self) -> None:
        """Look for due runs soon."""
        self._claim_wanted = True
        if self._claiming is None and self.running:
            self._claiming = self.host.loop.create_task(self._claim_while_wanted())

    async def _claim_while_wanted(self) -> None:
        try:
            while self._claim_wanted and self.running:
                self._claim_wanted = False
                if self._suspect is not None:
                    await self._isolate(self._suspect)
                    continue
                self._starved = self.host.free <= 0
                if not self._starved and self.lease.holds():
                    await self._claim()
        except StoreError as error:
            logger.debug("cannot claim now: %s", error)
            if isinstance(error, StoreUnavailable) and error.unknown:
                await self._returns.find_lost(self.id, lambda: self._on_the_way | self.host.runs.keys())
        finally:
            self._claiming = None

    async def _claim(self, only: str | None = None) -> None:
        host = self.host
        claims = await self._claimer.claim(self._claimant, only or self._only)
        self._starved |= self._claimer.held
        suspects = []
        for claimed in claims:
            if claimed.parked:
                reason = claimed.append.change and claimed.append.change.detail
                logger.error("run %s is parked: %s", claimed.row.id, reason)
                host.waiters.tell(claimed.row.id, (claimed.row, claimed.append.events[-1]))
            elif not claimed.deaths or claimed.deaths < host.settings.max_deaths - 1:
                if claimed.recent[0].seq == 1:
                    self._take_whole(claimed, claimed.recent)
                else:
                    await self._take(claimed)
            else:
                suspects.append(claimed)
        if len(suspects) == 1 and not host.runs:
            await self._execute_alone(suspects[0])
        elif suspects:
            await self._part(suspects)
        if self._claimer.backlog or self._suspect is not None:
            self._claim_wanted = True

    async def _part(self, suspects: list[Claimed]) -> None:
        """Part runs that may kill their worker from each other and from what is here.

        Neither may harm the other: what is here its life, what is only claimed its good name.
        """
        reason = "it may kill its worker and has to be alone"
        returned = [self._returns.give_back(claimed.append.events[-1], reason) for claimed in suspects]
        self._suspect, self._suspect_until = suspects[0].row.id, boot_time() + ISOLATION_S
        await asyncio.wait(returned, timeout=ISOLATION_S)

    async def _take(self, claimed: Claimed) -> None:
        if claimed.recent[0].seq == 1:
            self._take_whole(claimed, claimed.recent)
            return
        run_id = claimed.row.id
        self._on_the_way.add(run_id)
        try:
            history: list[Event] = await self.host.reader.call(self.host.loop, self.host.store.load, run_id)
        except StoreCorrupt as error:
            self._on_the_way.discard(run_id)
            self._park_corrupt(claimed, error)
            return
        except StoreError as error:
            # It stays ours in the database: hand it over by letting the claim count as a restart.
            logger.warning("cannot read run %s, trying again: %s", run_id, error)
            self.host.loop.call_later(0.5, self._take_later, claimed)
            return
        self._on_the_way.discard(run_id)
        self._take_whole(claimed, [event for event in history if event.seq < claimed.append.events[0].seq])

    def _take_whole(self, claimed: Claimed, history: Sequence[Event]) -> None:
        """Take a run whose log before the claim is ``history``."""
        change = claimed.append.change
        if change is not None and self._is_ours(change.owner):
            run = self._begin(claimed.row, change.epoch, [*history, *claimed.append.events])
            self.host.turns.join_soon(run)

    def _is_ours(self, owner: str | None) -> bool:
        """Whether a claim still counts: not if it was made by an incarnation that has been declared dead since."""
        return owner == self.id and not self.lease.lost

    def _park_corrupt(self, claimed: Claimed, error: StoreCorrupt) -> None:
        """Park a run whose log is damaged: nothing is guessed from it, and nobody tries it again and again."""
        change = claimed.append.change
        if change is not None and self._is_ours(change.owner):
            run = self._house(claimed.row, change.epoch, claimed.append.events)
            park(run, f"corrupt: {error.text}", "perdure verify shows what is damaged; restore a backup")

    def _take_later(self, claimed: Claimed) -> None:
        if self.running:
            self.host.loop.create_task(self._take(claimed))

    def _house(self, row: RunRow, epoch: int, events: Sequence[Event]) -> ResidentRun:
        run = ResidentRun(self.host, row, epoch, events[-1], events[0])
        self.host.runs[run.id] = run
        return run

    def _begin(self, row: RunRow, epoch: int, events: Sequence[Event]) -> ResidentRun:
        run = self._house(row, epoch, events)
        run.begin(events)
        if self.stopping:
            run.hand_back("the worker stops")
        return run

    async def _isolate(self, run_id: str) -> None:
        """Take nothing new until nothing is left here, then execute the suspect alone; give up after a while.

        Meanwhile it belongs to nobody: were it kept, a worker that dies while it waits would count against it.
        """
        for run, _ in list(self.host.idle.values()):
            run.evict()
        if boot_time() > self._suspect_until:
            self._suspect = None
        elif not self.host.runs:
            self._suspect = None
            await self._claim(only=run_id)
        # else `_room_made` and the poll come back here

    async def _execute_alone(self, claimed: Claimed) -> None:
        await self._take(claimed)
        run_id = claimed.row.id
        while run_id in self.host.runs and self.running and run_id not in self.host.idle:
            await asyncio.sleep(0.01)
        self._claim_wanted = True

    # -- what the heartbeat says ---------------------------------------------------------------------------------

    def _beaten(self, answer: Heartbeat) -> None:
        if not answer.alive:
            logger.error("worker %s was declared dead: dropping %d runs", self.name, len(self.host.runs))
            for run in list(self.host.runs.values()):
                run.drop("this worker was declared dead")
            self._suspect = None
            if self.running:
                self._rejoining = self.host.loop.create_task(self._rejoin())
            return
        self.host.lease_extended()
        self.check_owned(answer.owned)

    async def _rejoin(self) -> None:
        """Go on as a new worker: what froze this process for so long is over, and nothing of the old life is left."""
        while self.running:
            self._be_somebody()
            self.lease = Lease(self.host.store, self.id, self.host.settings.lease_us)
            try:
                await self._enroll()
            except StoreError as error:
                logger.debug("cannot register again now: %s", error)
                await asyncio.sleep(0.5)
                continue
            logger.warning("worker %s goes on under a new id", self.name)
            self.host.lease_extended()
            self.want_claim()
            return

    def check_owned(self, owned: dict[str, tuple[int, int]]) -> None:
        """Compare what the database says this worker owns with what is here."""
        for run_id, (epoch, inbox_n) in owned.items():
            run = self.host.runs.get(run_id)
            if run is not None and run.recorder.epoch == epoch and inbox_n > run.inbox_seen:
                run.look_at_inbox()
        for run in list(self.host.runs.values()):
            here = owned.get(run.id)
            if run.settled_in and (here is None or here[0] != run.recorder.epoch) and not run.leaving:
                run.drop("the database says it moved on")
            run.settled_in = True
        if self._claiming is None:
            self._returns.reconcile(owned, self._on_the_way | self.host.runs.keys())
