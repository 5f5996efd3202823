"""The lease: it beats on a thread of its own, ends early, and a heartbeat that fails is tried again soon."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from perdure.errors import StoreUnavailable
from perdure.model.run import Heartbeat
from perdure.runtime.lease import Lease, boot_time

LEASE_US = 90_000


class Pulse:
    """A store that answers heartbeats as it is told; the last answer is repeated."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.beats = 0

    def heartbeat(self, worker_id: str, lease_us: int) -> Heartbeat:
        self.beats += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return Heartbeat(alive=answer, owned={})


def lease_of(pulse: Pulse) -> Lease:
    store: Any = pulse
    return Lease(store, "w", LEASE_US)


def nothing() -> None:
    pass


async def test_a_lease_holds_for_nine_tenths_of_what_the_database_grants() -> None:
    lease = lease_of(Pulse(True))
    assert not lease.holds()
    sent = boot_time()
    lease.granted(sent)
    assert lease.deadline == sent + 0.9 * LEASE_US / 1_000_000
    assert lease.holds()
    lease.granted(sent - 1)
    assert not lease.holds(), "it counts from sending, however late the answer"


async def test_a_heartbeat_that_fails_is_tried_again_and_drops_nothing() -> None:
    pulse, answers = Pulse(StoreUnavailable("gone"), StoreUnavailable("gone"), True), asyncio.Queue[Heartbeat]()
    lease = lease_of(pulse)
    lease.start(asyncio.get_running_loop(), answers.put_nowait, nothing)
    answer = await asyncio.wait_for(answers.get(), 5)
    assert answer.alive
    assert lease.beating
    assert not lease.lost
    assert pulse.beats >= 3
    await asyncio.to_thread(lease.stop)
    assert not lease.beating


async def test_a_worker_that_was_declared_dead_starts_nothing_and_beats_no_more() -> None:
    pulse, answers = Pulse(False), asyncio.Queue[Heartbeat]()
    lease = lease_of(pulse)
    lease.granted(boot_time() + 60)
    lease.start(asyncio.get_running_loop(), answers.put_nowait, nothing)
    assert not (await asyncio.wait_for(answers.get(), 5)).alive
    assert lease.lost
    assert not lease.holds()
    await asyncio.to_thread(lease.stop)
    assert pulse.beats == 1


def test_the_heartbeat_ends_with_its_loop() -> None:
    loop, pulse = asyncio.new_event_loop(), Pulse(True)
    lease = lease_of(pulse)
    loop.close()
    lease.start(loop, lambda answer: None, nothing)
    assert lease._thread is not None
    lease._thread.join(5)
    assert not lease.beating
    assert pulse.beats == 1
    lease.stop()


def test_a_lease_that_never_began_can_be_stopped() -> None:
    before = threading.active_count()
    lease_of(Pulse(True)).stop()
    assert threading.active_count() == before
