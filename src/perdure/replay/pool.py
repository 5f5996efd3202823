"""Processes that check histories, each with another hash seed: what depends on the order of a set comes out.

A process serves many histories. One that does not come back in time, or ends, is started anew for the next.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from perdure.errors import PerdureError, UsageError, VersionLoadFailed
from perdure.replay.check import PATIENCE_S
from perdure.replay.code import place_of
from perdure.replay.frames import LENGTH_BYTES, Answer, Order
from perdure.replay.verdict import Finding, Verdict, VerdictKind
from perdure.runtime.hosts.job import Job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.kernel.definition import WorkflowDefinition
    from perdure.replay.history import History

START_S = 60.0
"""How long a process may take to load the code."""
_SPARE_S = 5.0
_INSIDE = "PERDURE_CHECKS"
"""Set in the environment of a process that checks."""
_CHUNK = 1 << 20


class Gone(Exception):
    """A process has ended, or does not answer."""


class Pool:
    """Checks histories in processes of its own. Safe to use from several threads, one after another.

    Args:
        code: what histories are checked against: code that lies on the path, by the name of the workflow they were
            recorded for; or the stored versions of a job.
        codec: name of the codec that their values were stored with.
        options: options of that codec.
        processes: how many; the hash seed of each is its number.
        patience_s: how long a body may take.

    Raises:
        UsageError: another process could not find a workflow.
    """

    def __init__(
        self, code: Mapping[str, WorkflowDefinition] | Job, *, codec: str = "json",
        options: Mapping[str, Any] | None = None, processes: int = 2, patience_s: float = PATIENCE_S,
    ) -> None:  # fmt: skip
        if _INSIDE in os.environ:  # a script that checks at its top would start processes without end
            message = "the code starts a check while it is loaded for one"
            raise UsageError(message, hint='put what a script does under `if __name__ == "__main__":`')
        given = codec, dict(options or {}), patience_s
        if isinstance(code, Job):
            order = Order([], {}, *given, msgspec.msgpack.encode(code))
            self._known = {entry.workflow for entry in code.entries}
            start = Start("perdure.hosting.rehearsal", {}, code.version)
        else:
            path = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100 - "" is the current folder
            order = Order(path, {name: place_of(each) for name, each in code.items()}, *given)
            self._known = set(code)
            start = Start("perdure.replay.child", {"PYTHONPATH": os.pathsep.join(path)})
        self._codec = codec
        self._lock = threading.Lock()
        self._children = [_Child(order, start, seed) for seed in range(1, processes + 1)]

    def check(self, history: History) -> Verdict:
        """Check one history in every process.

        Raises:
            UsageError: the code cannot be loaded.
            VersionLoadFailed: the stored version cannot be loaded.
        """
        self._check_known(history)
        data = msgspec.msgpack.encode(history)
        with self._lock:
            try:
                for child in self._children:
                    child.send(data)
            except PerdureError:
                self.close()  # else an answer of the others would be taken for that to the next history
                raise
            found = [child.receive() for child in self._children]
        lost = next((each for each in found if isinstance(each, str)), None)
        if lost is None:
            return agreed([each for each in found if isinstance(each, Finding)])
        return Verdict(
            run_id=history.run_id, workflow=history.workflow, kind=VerdictKind.RAISES, at="start", found=lost
        )

    def _check_known(self, history: History) -> None:
        if history.workflow not in self._known:
            raise UsageError(f"run {history.run_id!r} is of workflow {history.workflow!r}, whose code is not here")
        if history.codec != self._codec:
            message = f"run {history.run_id!r} was stored with codec {history.codec!r}, not {self._codec!r}"
            raise UsageError(message)

    def close(self) -> None:
        """End the processes. A check under way ends with them."""
        for child in self._children:
            child.end()


def agreed(findings: list[Finding]) -> Verdict:
    """Return the verdict of checks that should have gone the same way."""
    first = findings[0]
    for other in findings[1:]:
        same = (first.verdict.kind, first.verdict.at) == (other.verdict.kind, other.verdict.at)
        if not same or first.trace != other.trace:
            return _disagreed(first, other)
    return first.verdict


def _disagreed(first: Finding, other: Finding) -> Verdict:
    pairs = enumerate(zip(first.trace, other.trace, strict=False))
    place = next((n for n, (one, two) in pairs if one != two), min(len(first.trace), len(other.trace)))
    one, two = (finding.trace[place] if place < len(finding.trace) else "" for finding in (first, other))
    what, other_what = _asked(one), _asked(two)
    found = f"with one hash seed the code asks for {what}, with another for {other_what}"
    if what == other_what:
        found = f"with another hash seed the code asks for {what} with other data"
    return Verdict(
        run_id=first.verdict.run_id, workflow=first.verdict.workflow, kind=VerdictKind.NONDETERMINISTIC,
        at=(one or two).partition(" ")[0] or first.verdict.at, found=found,
    )  # fmt: skip


def _asked(line: str) -> str:
    if not line:
        return "nothing"
    at, _, what = line.rpartition(" ")[0].partition(" ")
    return f"{what} ({at})"


class Start(NamedTuple):
    """How a process is started."""

    program: str
    environment: Mapping[str, str]
    version: str = ""
    """What messages call a stored version."""

    def failed(self, why: str) -> PerdureError:
        """Return the error that says that the code cannot be loaded."""
        if self.version:
            return VersionLoadFailed(f"{self.version} could not be loaded: {why.rstrip('.')}.")
        return UsageError(why)


class _Child:
    def __init__(self, order: Order, start: Start, seed: int) -> None:
        self._order = order
        self._how = start
        self._seed = seed
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: Any = None

    def send(self, data: bytes) -> None:
        """Hand over a history; the answer is to be received next."""
        try:
            self._write(self._process or self._start(), data)
        except BrokenPipeError:
            self.end()  # its answer is missing then, and tells

    def receive(self) -> Finding | str:
        """Return what was found, or what became of the process."""
        process = self._process
        if process is None:
            return "the process that checked it has ended"
        try:
            answer = self._read(process, self._order.patience_s + _SPARE_S)
        except Gone as gone:
            code, words = self._reap(process)
            if gone.args or code == -signal.SIGALRM:
                return f"the code did not come to its next operation within {self._order.patience_s:g} s"
            return f"the process that checked it has ended (exit code {code}): {words}"
        assert answer.finding is not None  # noqa: S101 - an error is an answer to the order only
        return answer.finding

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, _INSIDE: "1", "PYTHONHASHSEED": str(self._seed), **self._how.environment}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        process = self._process = subprocess.Popen(  # noqa: S603 - one of two programs of ours
            [sys.executable, "-P", "-m", self._how.program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            self._write(process, msgspec.msgpack.encode(self._order))
            error = self._read(process, START_S).error
        except (Gone, BrokenPipeError):
            _, words = self._reap(process)
            raise self._how.failed(f"the process that checks cannot start: {words}") from None
        if error:
            self._reap(process)
            raise self._how.failed(error if self._how.version else f"the code cannot be loaded: {error}")
        return process

    @staticmethod
    def _write(process: subprocess.Popen[bytes], data: bytes) -> None:
        assert process.stdin is not None  # noqa: S101 - it was opened as a pipe
        process.stdin.write(len(data).to_bytes(LENGTH_BYTES, "big"))
        process.stdin.write(data)
        process.stdin.flush()

    @staticmethod
    def _read(process: subprocess.Popen[bytes], seconds: float) -> Answer:
        assert process.stdout is not None  # noqa: S101 - it was opened as a pipe
        until = time.monotonic() + seconds
        file, data = process.stdout.fileno(), b""
        wanted = LENGTH_BYTES
        while len(data) < wanted:
            if not select.select([file], [], [], max(0.0, until - time.monotonic()))[0]:
                raise Gone("time is over")
            piece = os.read(file, _CHUNK)
            if not piece:
                raise Gone
            data += piece
            if len(data) >= LENGTH_BYTES:
                wanted = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big")
        return msgspec.msgpack.decode(data[LENGTH_BYTES:], type=Answer)

    def _reap(self, process: subprocess.Popen[bytes]) -> tuple[int, str]:
        """Wait for the end of a process; return its exit code and its last words."""
        self._process = None
        try:
            code = process.wait(0.5)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        self._errors.close()
        return code, lines[-1] if lines else "it says nothing"

    def end(self) -> None:
        """End the process."""
        process = self._process
        if process is not None:
            process.kill()
            self._reap(process)
