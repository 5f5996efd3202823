"""Starts version hosts by forking a warm process, where that can be done; else from nothing.

The first host of a worker is started from nothing, and says which modules it has loaded. A server is started beside it
that imports those, and later hosts are forked from it. A module that starts a thread is left out, and again until there
is none; hosts that need it import it themselves. The server is kept as long as the worker: its hosts are its children.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.runtime.hosts.job import Job, Told, framed
from perdure.runtime.hosts.process import HostProcess, Piped, Pipes, Spawner, environment
from perdure.runtime.hosts.warmth import News, Warmth

if TYPE_CHECKING:
    from collections.abc import Mapping

logger: logging.Logger = logging.getLogger("perdure.hosts")
_MOST_CULPRITS: Final = 8
_PATIENCE_S: Final = 30.0
_CODE_S: Final = 1.0
_UNKNOWN: Final = -signal.SIGKILL


class Forked(Piped):
    """A host forked by a server. It is no child of ours, so the server says how it ended."""

    def __init__(self, pid: int, pipes: Pipes, said: asyncio.Future[int]) -> None:
        super().__init__(pid, pipes)
        self._said = said
        self._handle = os.pidfd_open(pid)
        """Stands for this process, whoever has its number later."""
        self._gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._handle, self._has_ended)

    def _has_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._handle)
        self._gone.set()

    def _send(self, number: signal.Signals) -> None:
        signal.pidfd_send_signal(self._handle, number)

    async def _code(self) -> int:
        await self._gone.wait()
        with suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._said), _CODE_S)
        return _UNKNOWN  # the server is gone too

    def close(self) -> None:
        """See `HostProcess`."""
        if not self._gone.is_set():
            asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        super().close()


class ForkServer:
    """The worker's end of one fork server."""

    def __init__(self, process: asyncio.subprocess.Process, here: socket.socket) -> None:
        self._process = process
        self._socket = here
        self._asked: deque[asyncio.Future[int]] = deque()
        self._codes: dict[int, asyncio.Future[int]] = {}
        self._told: asyncio.Future[News] = asyncio.get_running_loop().create_future()
        self._rest = b""
        self.alive: bool = True

    @classmethod
    async def start(cls, warmth: Warmth, environ: Mapping[str, str] | None) -> ForkServer:
        """Start a server, which imports now.

        Raises:
            OSError: it cannot be started.
        """
        here, there = socket.socketpair()
        here.setblocking(False)
        with there:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "perdure.hosting.forking", stdin=there.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                env=environment(environ), start_new_session=True,
            )  # fmt: skip
        server = cls(process, here)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(here, msgspec.json.encode(warmth) + b"\n")
        loop.add_reader(here, server._hear)
        return server

    async def verdict(self) -> News:
        """Return whether it is warm, or which module made it unfit."""
        async with asyncio.timeout(_PATIENCE_S):
            return await asyncio.shield(self._told)

    async def fork(self, job: Job) -> Forked:
        """Fork a host and give it its job.

        Raises:
            OSError: the server is gone.
        """
        pipes = Pipes()
        ends = await pipes.open(job)
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[int] = loop.create_future()
        try:
            self._asked.append(asked)
            socket.send_fds(self._socket, [b"f"], ends)
            pid = await asked
            forked = Forked(pid, pipes, self._codes.setdefault(pid, loop.create_future()))
        except BaseException:
            pipes.close()
            raise
        finally:
            for end in ends:
                os.close(end)
        pipes.give(framed(job))
        return forked

    async def close(self) -> None:
        """End the server. Hosts that are left end soon after."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._lost()
        self._socket.close()
        try:
            await asyncio.wait_for(self._process.wait(), 1.0)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def _hear(self) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._lost()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(msgspec.json.decode(line, type=News))

    def _take(self, news: News) -> None:
        if news.what == "forked":
            asked = self._asked.popleft()
            if not asked.done():
                asked.set_result(news.pid)
        elif news.what == "ended":
            code = self._codes.setdefault(news.pid, asyncio.get_running_loop().create_future())
            if not code.done():
                code.set_result(news.code)
        elif not self._told.done():
            self._told.set_result(news)

    def _lost(self) -> None:
        self.alive = False
        for asked in self._asked:
            if not asked.done():
                asked.set_exception(ConnectionResetError("the fork server is gone"))
        if not self._told.done():
            self._told.set_result(News("unfit"))


class WarmSpawner:
    """Starts hosts, by forking once there is a warm server.

    Args:
        cold: starts hosts from nothing.
        forks: whether to fork at all; not where hosts may have interpreters of their own.
        environ: environment of the server; this process's own by default.
    """

    def __init__(
        self, cold: Spawner, *, forks: bool = sys.platform == "linux", environ: Mapping[str, str] | None = None
    ) -> None:
        self._cold = cold
        self._forks = forks
        self._environ = environ
        self._warming: asyncio.Task[None] | None = None
        self._server: ForkServer | None = None

    async def __call__(self, job: Job) -> HostProcess:
        """Start a host and give it its job.

        Raises:
            OSError: no process can be started.
        """
        server = self._server
        if server is not None and server.alive:
            try:
                return await server.fork(job)
            except OSError as error:
                logger.warning("no host can be forked, one is started from nothing: %s", error)
        return _Teacher(await self._cold(job), self, job)

    def learn(self, job: Job, modules: list[str]) -> None:
        """Take what a host has loaded as what a server should import, unless there is one."""
        lives = self._server is not None and self._server.alive
        if self._forks and not lives and (self._warming is None or self._warming.done()):
            first_party = [*job.roots, *job.elsewhere]
            warmth = Warmth(modules, first_party, list(job.deployed), job.path)
            self._warming = asyncio.get_running_loop().create_task(self._warm(warmth), name="perdure-fork-server")

    async def _warm(self, warmth: Warmth) -> None:
        if self._server is not None:
            await self._server.close()
            self._server = None
        left = list(warmth.modules)
        for _ in range(_MOST_CULPRITS):
            server = await ForkServer.start(msgspec.structs.replace(warmth, modules=left), self._environ)
            try:
                news = await server.verdict()
            except BaseException:
                await server.close()
                raise
            if news.what == "warm":
                self._server = server
                return
            await server.close()
            if not news.module:
                break
            # A module brings the packages above it, so it need not be the module itself that does it.
            culprit = news.module.partition(".")[0]
            logger.info("%s starts a thread when it is imported; the fork server does without it", culprit)
            left = [name for name in left if name.partition(".")[0] != culprit]
        logger.warning("no fork server can be had; hosts are started from nothing")
        self._forks = False

    async def warmed(self) -> bool:
        """Wait until a server that is being warmed is warm; return whether there is one."""
        if self._warming is not None:
            await asyncio.gather(self._warming, return_exceptions=True)
        return self._server is not None and self._server.alive

    async def close(self) -> None:
        """End the server; to be called when no host is left."""
        self._forks = False
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.gather(self._warming, return_exceptions=True)
        if self._server is not None:
            await self._server.close()
            self._server = None


class _Teacher:
    """A host started from nothing, whose loaded modules are learned when it is ready."""

    def __init__(self, host: HostProcess, spawner: WarmSpawner, job: Job) -> None:
        self._host = host
        self._spawner = spawner
        self._job = job
        self.pid: int = host.pid
        self.drain = host.drain
        self.terminate = host.terminate
        self.kill = host.kill
        self.ended = host.ended
        self.close = host.close

    async def told(self) -> Told | None:
        """See `HostProcess`."""
        told = await self._host.told()
        if told is not None and told.state == "ready":
            self._spawner.learn(self._job, told.modules)
        return told
