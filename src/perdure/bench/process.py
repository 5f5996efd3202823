"""This process: what the operating system says of it, and when it ends."""

from __future__ import annotations

import gc
import os
import resource
import sys
from pathlib import Path

PAUSE_COLLECTOR = 100_000
"""Objects between two looks of the garbage collector, as in the worker command."""


def cpu_s() -> float:
    """Return the processor time of this process so far, user and system, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory_mb(*, peak: bool) -> float:
    """Return the resident memory of this process in megabytes: now, or its peak."""
    status = Path("/proc/self/status")
    if status.exists():
        # The peak of this very program. getrusage counts what the process was before exec, too.
        wanted = "VmHWM:" if peak else "VmRSS:"
        line = next(line for line in status.read_text("ascii").splitlines() if line.startswith(wanted))
        return int(line.split()[1]) / 1024
    scale = 2**20 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def settle() -> None:
    """Start a measurement from the same point: nothing left to collect."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(PAUSE_COLLECTOR, 50, 50)


def end_with_parent() -> None:
    """Wait for the end of standard input, a pipe the parent holds, and end. Nobody is left to read a figure then."""
    os.read(sys.stdin.fileno(), 1)  # unbuffered: a buffer's lock would be in the way at exit
    os._exit(1)
