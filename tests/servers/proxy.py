"""A proxy between a client and a database server, which cuts, holds and counts at places of the protocol.

proxy = servers.proxy(server)
url = server.url("test_1", port=proxy.port)
proxy.on_commit("after", touching="event_log")
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from tests.servers.server import HOST, PATIENCE_S, free_port
from tests.servers.wire import MysqlWire, Part, PostgresWire, Wire

Where = Literal["before", "after", "mid-reply"]
WIRES: dict[str, Callable[[], Wire]] = {"postgres": PostgresWire, "mysql": MysqlWire}
CHUNK = 1 << 16
Result = TypeVar("Result")


@dataclass(slots=True)
class Fault:
    """Cut the connection at commits."""

    where: Where
    touching: re.Pattern[str]
    skip: int
    times: int

    def strikes(self, part: Part) -> bool:
        """Say whether this commit is one to cut at."""
        if self.times <= 0 or not self.touching.search("\n".join(part.transaction)):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class Connection:
    """One client and its connection to the server."""

    def __init__(self, proxy: Proxy, client: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = client
        self._to_server: asyncio.StreamWriter | None = None
        self._wire = WIRES[proxy.protocol]()
        self._cut_at: Where | None = None
        self._held = b""

    async def run(self) -> None:
        """Pass everything on until one side ends or a fault strikes."""
        pumps: list[asyncio.Task[None]] = []
        try:
            with suppress(OSError):
                await self._proxy.gate.wait()
                from_server, self._to_server = await asyncio.open_connection(HOST, self._proxy.target_port)
                pumps = [
                    asyncio.create_task(self._pump_client(self._to_server)),
                    asyncio.create_task(self._pump_server(from_server)),
                ]
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._to_client.close()
            if self._to_server is not None:
                self._to_server.close()

    async def _pump_client(self, to_server: asyncio.StreamWriter) -> None:
        while data := await self._from_client.read(CHUNK):
            await self._proxy.pace()
            self._proxy.requests += 1
            passed: list[bytes] = []
            for part in self._wire.from_client(data):
                if part.statement:
                    self._proxy.statements[part.statement.split(None, 1)[0].lower()] += 1
                if part.commits and self._cut_at is None:
                    self._cut_at = self._proxy.fault_at(part)
                    if self._cut_at == "before":
                        to_server.write(b"".join(passed))
                        self._cut()
                        return
                passed.append(part.data)
            to_server.write(b"".join(passed))
            await to_server.drain()

    async def _pump_server(self, from_server: asyncio.StreamReader) -> None:
        while data := await from_server.read(CHUNK):
            await self._proxy.pace()
            whole = self._wire.from_server(data)
            if self._cut_at is None:
                self._to_client.write(data)
                await self._to_client.drain()
                continue
            self._held += data
            if not whole:
                continue
            if self._cut_at == "mid-reply":
                self._to_client.write(self._held[: len(self._held) // 2])
                await self._to_client.drain()
                self._proxy.note_cut()
            else:
                self._cut()
            return

    def _cut(self) -> None:
        self.reset()
        self._proxy.note_cut()

    def reset(self) -> None:
        """End the connection with a reset, as a firewall or a crash does."""
        with suppress(OSError):
            self._to_client.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        self._to_client.transport.abort()
        if self._to_server is not None:
            self._to_server.transport.abort()


class Proxy:
    """Listens on a port of its own, in a thread of its own. Faults may be ordered from any thread."""

    def __init__(self, target_port: int, protocol: Literal["postgres", "mysql"]) -> None:
        self.protocol = protocol
        self.target_port = target_port
        """The port of the server. May be changed; connections that are there stay where they are."""
        self.port = free_port()
        self.delay_s = 0.0
        """How long each piece waits, in both directions."""
        self.statements: Counter[str] = Counter()
        """How often each kind of statement was executed, by its first word in lower case."""
        self.requests = 0
        """How often a client sent something."""
        self.gate = asyncio.Event()
        self._faults: list[Fault] = []
        self._cuts = 0
        self._seen = threading.Condition()
        self._connections: set[Connection] = set()
        self._refusing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._accept, HOST, self.port))
        self.thaw()

    # ---- faults ----

    def on_commit(self, where: Where, *, touching: str = "", skip: int = 0, times: int = 1) -> None:
        """Cut connections at commits.

        Args:
            where: ``before`` the server has it: rolled back. ``after`` the server has answered, and the client has
                nothing of it: committed. ``mid-reply``: the same, with half of the answer.
            touching: only commits of transactions with a statement in which this pattern is found.
            skip: let so many of them pass first.
            times: cut so many.
        """
        self._faults.append(Fault(where, re.compile(touching, re.IGNORECASE), skip, times))

    @property
    def cuts(self) -> int:
        """Give how many connections were cut at a commit."""
        return self._cuts

    def await_cuts(self, number: int, within: float = PATIENCE_S) -> None:
        """Wait until so many connections were cut at a commit."""
        with self._seen:
            if not self._seen.wait_for(lambda: self._cuts >= number, within):
                message = f"{self._cuts} connections were cut, not {number}"
                raise AssertionError(message)

    def cut(self) -> int:
        """Cut every connection there is, now. Give how many there were."""
        return self._call(self._cut_all())

    def freeze(self) -> None:
        """Pass nothing on and answer nothing. Connections stay, and new ones are accepted: a black hole."""
        self._loop.call_soon_threadsafe(self.gate.clear)

    def thaw(self) -> None:
        """Go on where `freeze` stopped."""
        self._loop.call_soon_threadsafe(self.gate.set)

    def hold(self, seconds: float) -> None:
        """Be a black hole for a time. Returns at once."""
        self.freeze()
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self.gate.set)

    def refuse(self, *, refusing: bool = True) -> None:
        """Reset new connections at once."""
        self._refusing = refusing

    # ---- for connections ----

    async def pace(self) -> None:
        """Wait as long as a piece has to."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        await self.gate.wait()

    def fault_at(self, part: Part) -> Where | None:
        """Give where to cut, if this commit is one to cut at."""
        return next((fault.where for fault in self._faults if fault.strikes(part)), None)

    def note_cut(self) -> None:
        """Count a connection that was cut at a commit."""
        with self._seen:
            self._cuts += 1
            self._seen.notify_all()

    # ---- life ----

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, (reader, writer))
        if self._refusing:
            connection.reset()
            return
        self._connections.add(connection)
        try:
            await connection.run()
        except asyncio.CancelledError:
            connection.reset()
        finally:
            self._connections.discard(connection)

    async def _cut_all(self) -> int:
        found = list(self._connections)
        for connection in found:
            connection.reset()
        return len(found)

    def close(self) -> None:
        """Cut everything and stop listening. May be called twice."""
        if self._loop.is_closed():
            return
        self._call(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    async def _shut_down(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)
