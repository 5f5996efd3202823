"""The two pipes between a host and its worker, taken away from the code that the host runs.

Standard input brought the job and ends when the worker does; standard output carries states. What the version's code
prints goes to standard error, which the worker logs.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NoReturn

from perdure.runtime.hosts.job import DRAIN, LENGTH_BYTES, Job, Told, line, read_job

if TYPE_CHECKING:
    from collections.abc import Callable

Wish = Literal["drain", "orphaned"]
_LOOK_S = 1.0
_CHUNK = 65536


class Control:
    """What the worker says and is told. Made once, before anything of the version is loaded."""

    def __init__(self) -> None:
        self._given, self._answers = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self._parent = os.getppid()
        self._wished: Callable[[Wish], None] | None = None
        self._orphaned_s = 0.0

    def read_job(self) -> Job | None:
        """Return the job, or None where the worker is gone before it could give one."""
        size = int.from_bytes(self._exactly(LENGTH_BYTES), "big")
        data = self._exactly(size)
        return read_job(data) if size and len(data) == size else None

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = os.read(self._given, min(size - len(data), 1 << 20))
            if not piece:
                break
            data += piece
        return data

    def tell(self, told: Told) -> None:
        """Tell the worker. Nobody may listen any more."""
        data = line(told)
        with suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._answers, data) :]

    def watch(self, orphaned_s: float) -> None:
        """Look after the worker from now on, on a thread of its own: user code may hold up everything else.

        When it is gone, this process ends after ``orphaned_s`` whatever it does, and at once while it is loading.
        """
        self._orphaned_s = orphaned_s
        threading.Thread(target=self._watch, name="perdure-worker-watch", daemon=True).start()

    def when_wished(self, call: Callable[[Wish], None]) -> None:
        """Be told of wishes; called on the watching thread."""
        self._wished = call

    def _watch(self) -> None:
        said = b""
        while True:
            readable = select.select([self._given], [], [], _LOOK_S)[0]
            # A process that the worker forked may hold the other end of the pipe, so its end may never come.
            piece = os.read(self._given, _CHUNK) if readable else b""
            if (readable and not piece) or os.getppid() != self._parent:
                break
            said += piece
            if DRAIN in said:
                said = b""
                self._wish("drain")
        if self._wished is None:
            leave(1)
        self._wish("orphaned")
        threading.Event().wait(self._orphaned_s)
        leave(1)

    def _wish(self, wish: Wish) -> None:
        if self._wished is not None:
            self._wished(wish)


def leave(code: int) -> NoReturn:
    """End this process now, and ask the processes that its steps started to end too."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGTERM)  # this process has a handler, which does not come to run any more
    os._exit(code)
