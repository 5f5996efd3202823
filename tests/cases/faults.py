"""Faults a worker process does to itself at an exact write: killed or stopped.

A fault is text: ``kill before step_completed second``, ``stop before timer_fired``,
``kill after write 3 since second``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from typing import Any

from perdure.store.instrumented import Instrumented
from tests.cases.ledger import Ledger, note

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Fault:
    """One fault, armed by replacing the commit of every store in this process."""

    def __init__(self, text: str, ledger: Ledger) -> None:
        words = text.split()
        self.signal = SIGNALS[words[0]]
        self.when = words[1]
        self.type = words[2]
        self.name = words[3] if len(words) > 3 else ""
        self.since = words[5] if len(words) > 5 else ""
        self._ledger = ledger
        self._writes = 0
        self._done = False

    def meets(self, batch: Sequence[Any]) -> bool:
        """Whether this is the batch meant."""
        if self._done:
            return False
        if self.type == "write":
            if not self._ledger.count(self.since, phase="end"):
                return False
            self._writes += 1
            return self._writes == int(self.name)
        events = [event for write in batch for event in getattr(write, "events", ())]
        return any(event.type == self.type and (not self.name or event.name == self.name) for event in events)

    def strike(self) -> None:
        self._done = True
        note("fault", "strike")
        # To this thread: sent to the process, the main thread would take it, and this one would get a little further.
        signal.pthread_kill(threading.get_ident(), self.signal)


def arm(text: str, ledger: Ledger) -> None:
    """Arm a fault in this process."""
    fault = Fault(text, ledger)
    original = Instrumented.commit

    def commit(self: Instrumented, batch: Sequence[Any], *, block: bool = True) -> Any:
        meant = fault.meets(batch)
        if meant and fault.when == "before":
            fault.strike()
        answer = original(self, batch, block=block)
        while meant and answer is None:  # the file is busy: this write is the one, so wait for it here
            answer = original(self, batch, block=True)
        if meant and fault.when == "after":
            fault.strike()
        return answer

    Instrumented.commit = commit  # type: ignore[method-assign]
    Instrumented.send = lambda _, __: None  # type: ignore[method-assign, assignment]  # so that every write comes by here
