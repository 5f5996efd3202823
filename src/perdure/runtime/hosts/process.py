"""Starts version hosts, and is the worker's end of their pipes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from perdure.runtime.hosts.job import DRAIN, Job, Told, framed, read_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

logger: logging.Logger = logging.getLogger("perdure.hosts")
_LONGEST_LINE: Final = 1 << 24
_LAST_WORDS_S: Final = 0.5
_LEVELS: Final = {name: getattr(logging, name) for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")}


class HostProcess(Protocol):
    """A host as its supervisor sees it."""

    pid: int

    async def told(self) -> Told | None:
        """Return what it tells next; None once it tells nothing more."""
        ...

    def drain(self) -> None:
        """Ask it to finish what it has, however long that takes, and to leave."""
        ...

    def terminate(self) -> None:
        """Ask it to leave within its grace."""
        ...

    def kill(self) -> None:
        """End it now."""
        ...

    async def ended(self) -> int:
        """Wait until it has ended; return its exit code, negative for a signal."""
        ...

    def close(self) -> None:
        """Let go of its pipes, once it has ended."""
        ...


class Pipes:
    """The worker's ends of a host's standard input, output and error."""

    def __init__(self) -> None:
        self._answers = asyncio.StreamReader(limit=_LONGEST_LINE)
        self._input: asyncio.WriteTransport | None = None
        self._open: list[asyncio.BaseTransport] = []
        self._heard = asyncio.Event()

    async def open(self, job: Job) -> tuple[int, int, int]:
        """Make the pipes, and return the host's ends, which are the caller's to close."""
        loop = asyncio.get_running_loop()
        (given, to_host), (from_host, answers), (words, errors) = os.pipe(), os.pipe(), os.pipe()
        self._input, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(to_host, "wb", 0))
        reader = asyncio.StreamReaderProtocol(self._answers)
        reading, _ = await loop.connect_read_pipe(lambda: reader, os.fdopen(from_host, "rb", 0))
        words_ = _Words(job.release, self._heard)
        logging_, _ = await loop.connect_read_pipe(lambda: words_, os.fdopen(words, "rb", 0))
        self._open = [self._input, reading, logging_]
        return given, answers, errors

    def give(self, data: bytes) -> None:
        """Send to the host. It may be gone."""
        if self._input is not None and not self._input.is_closing():
            self._input.write(data)

    async def told(self) -> Told | None:
        """Return what the host tells next; None at the end."""
        while True:
            try:
                data = await self._answers.readline()
            except ValueError:
                continue  # far too long to be ours
            if not data.endswith(b"\n"):
                return None
            try:
                return read_line(data)
            except msgspec.DecodeError:
                logger.warning("a version host said something that is no state: %r", data[:200])

    async def heard(self) -> None:
        """Wait a moment for the last words of a host that has ended. A process of a step may hold the pipe open."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._heard.wait(), _LAST_WORDS_S)

    def close(self) -> None:
        """Let go."""
        for transport in self._open:
            transport.close()


class _Words(asyncio.Protocol):
    """What a host and the old code in it print, line by line to the log."""

    def __init__(self, release: str, heard: asyncio.Event) -> None:
        self._release = release
        self._heard = heard
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        """Log whole lines."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        for one in lines:
            self._log(one)

    def connection_lost(self, _error: Exception | None) -> None:
        """Log what is left."""
        if self._rest:
            self._log(self._rest)
        self._heard.set()

    def _log(self, data: bytes) -> None:
        text = data.decode("utf-8", "replace").rstrip()
        level, _, rest = text.partition(" ")
        known = _LEVELS.get(level)
        logger.log(known or logging.INFO, "release %s: %s", self._release, text if known is None else rest)


class Piped(ABC):
    """A host of this machine: it is spoken to through pipes, and ended by signals."""

    def __init__(self, pid: int, pipes: Pipes) -> None:
        self.pid: int = pid
        self._pipes = pipes

    async def told(self) -> Told | None:
        """See `HostProcess`."""
        return await self._pipes.told()

    def drain(self) -> None:
        """See `HostProcess`."""
        self._pipes.give(DRAIN)

    def terminate(self) -> None:
        """See `HostProcess`."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """See `HostProcess`."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self._send(number)

    @abstractmethod
    def _send(self, number: signal.Signals) -> None:
        """Send it a signal, and to no other process that has its number by now.

        Raises:
            ProcessLookupError: it has ended.
        """

    async def ended(self) -> int:
        """See `HostProcess`."""
        code = await self._code()
        await self._pipes.heard()
        return code

    @abstractmethod
    async def _code(self) -> int:
        """Wait until it has ended; return its exit code."""

    def close(self) -> None:
        """See `HostProcess`."""
        self._pipes.close()


class Spawned(Piped):
    """A host started from nothing."""

    def __init__(self, process: asyncio.subprocess.Process, pipes: Pipes) -> None:
        super().__init__(process.pid, pipes)
        self._process = process

    def _send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def _code(self) -> int:
        return await self._process.wait()


class Spawner:
    """Starts hosts from nothing.

    Args:
        interpreter: gives the Python that runs a job. Where environments are built for old versions, it is theirs.
        environ: environment of the hosts; this process's own by default.
        given: file descriptors that hosts have too.
    """

    def __init__(
        self, interpreter: Callable[[Job], Awaitable[str]] | None = None, environ: Mapping[str, str] | None = None,
        given: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self._interpreter = interpreter
        self._environ = environ
        self._given = given

    async def __call__(self, job: Job) -> Spawned:
        """Start a host and give it its job.

        Raises:
            OSError: no process can be started.
        """
        python = sys.executable if self._interpreter is None else await self._interpreter(job)
        pipes = Pipes()
        ends = await pipes.open(job)
        try:
            process = await asyncio.create_subprocess_exec(
                python, "-P", "-m", "perdure.hosting", stdin=ends[0], stdout=ends[1], stderr=ends[2],
                env=environment(self._environ), start_new_session=True, pass_fds=self._given,
            )  # fmt: skip
        except BaseException:
            pipes.close()
            raise
        finally:
            for end in ends:
                os.close(end)
        pipes.give(framed(job))
        return Spawned(process, pipes)


def environment(environ: Mapping[str, str] | None) -> dict[str, Any]:
    """Return the environment of a host: sets have the same order in all of them."""
    return {**(os.environ if environ is None else environ), "PYTHONHASHSEED": "0"}
