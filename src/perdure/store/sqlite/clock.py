"""The common clock of all processes that share a file: a wall-clock base plus the time since boot.

The base is stored in the file with the id of the boot it belongs to. The time since boot is one clock for all
processes of a machine, runs on while it sleeps, and is not moved when somebody sets the wall clock; so a timer is
never early because of such a jump, and no two processes disagree about a lease. See ADR 0010.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_SLACK_US = 1_000_000


class Machine(NamedTuple):
    """The machine as a store sees it. Passed in, so that tests can have another one."""

    boot_id: str
    """Changes with every boot; the same for all processes and containers of a boot."""
    host: str
    wall: Callable[[], int]
    """Wall clock in microseconds since the epoch."""
    ticks: Callable[[], int]
    """Microseconds since boot, the same for all processes, never going back."""


def _boottime_us() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000


def this_machine() -> Machine:
    """Return the machine we are on."""
    ticks = _boottime_us if hasattr(time, "CLOCK_BOOTTIME") else _monotonic_us
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        # No boot id: the machine's own id. A boot is then noticed by time since boot that went back.
        boot_id = f"node-{uuid.getnode():x}"
    return Machine(boot_id, socket.gethostname(), lambda: time.time_ns() // 1000, ticks)


class Clock:
    """``base + ticks``, where the base may be set anew; never goes back for the callers in this process."""

    def __init__(self, machine: Machine) -> None:
        self._ticks = machine.ticks
        self._state = (machine.wall() - machine.ticks(), 0)

    @property
    def base(self) -> int:
        """What to add to the time since boot."""
        return self._state[0]

    def now(self) -> int:
        """Return the time in microseconds since the epoch."""
        base, floor = self._state
        ticks = self._ticks  # not called as a method, which it is not: that is looked for in the class first
        now = base + ticks()
        return now if now > floor else floor  # noqa: FURB136 - a call less; this is asked for at every event

    def start(self, base: int) -> None:
        """Take the file's base over; before anybody has asked for the time."""
        self._state = (base, 0)

    def adopt(self, base: int) -> None:
        """Take over a base that another process has set.

        If it is an earlier time, ours stands still until that has caught up. The slack covers a thread that has
        read the old base and not yet returned.
        """
        if base == self._state[0]:
            return
        floor = 0 if base > self._state[0] else self.now() + _SLACK_US
        self._state = (base, max(floor, self._state[1]))
