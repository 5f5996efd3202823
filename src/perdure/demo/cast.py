"""The processes of a demonstration: the services outside, and the workers that get killed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

SERVICE = "PERDURE_DEMO_SERVICE"
"""Environment variable with the socket of the services outside, as the shop reads it."""
WORKERS = 2
PATIENCE_S = 20.0
_GENERATIONS = 4
"""From a version host over its fork server to its worker."""


class State(NamedTuple):
    """What the services say of themselves."""

    done: dict[str, int]
    in_flight: dict[int, int]
    """Process id of the caller to the requests it waits for."""


@dataclass
class Cast:
    """Starts, kills and ends the processes of one demonstration.

    Every process holds the reading end of a pipe from this one as its standard input and ends when that closes, so none
    is left behind even if this process is killed.
    """

    folder: Path
    socket: Path
    url: str
    seed: int
    kills: int = 0
    cut: int = 0
    """Requests that were under way in a worker when it was killed."""
    under_way: int = 0
    """Orders that were under way when the later release was deployed."""
    _service: asyncio.subprocess.Process | None = None
    _workers: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def open(self) -> None:
        """Start the services, then the workers."""
        self._service = await self._spawn(
            "perdure.demo.service", str(self.folder / "ledger.db"), str(self.socket), str(self.seed)
        )
        async with asyncio.timeout(PATIENCE_S):
            while not self.socket.exists():
                self._check(self._service)
                await asyncio.sleep(0.02)
        self._put("first")
        self._workers = [await self._worker() for _ in range(WORKERS)]

    async def deploy(self) -> None:
        """Put the later release in the place of the first one, whose source is gone then, and restart all workers."""
        self._put("second")
        before, self._workers = self._workers, [await self._worker() for _ in range(WORKERS)]
        await asyncio.gather(*(_end(process) for process in before))

    def _put(self, release: str) -> None:
        shutil.rmtree(self.app, ignore_errors=True)
        self.app.mkdir()
        source = Path(__file__).with_name("releases") / f"{release}.py"
        (self.app / "shop.py").write_text(source.read_text("utf-8"), "utf-8")

    @property
    def app(self) -> Path:
        """The folder that the shop's code is deployed to."""
        return self.folder / "app"

    async def _worker(self) -> asyncio.subprocess.Process:
        return await self._spawn("perdure.demo.worker", self.url, str(self.app))

    async def close(self) -> None:
        """End every process: by good words first, after a while by force."""
        service, self._service = self._service, None
        workers, self._workers = self._workers, []
        for group in (workers, [] if service is None else [service]):
            await asyncio.gather(*(_end(process) for process in group))
        self.socket.unlink(missing_ok=True)

    async def state(self) -> State:
        """Ask the services what was done, and who is waiting for an answer."""
        reader, writer = await asyncio.open_unix_connection(self.socket)
        try:
            writer.write(b'{"service": "state"}\n')
            answer: dict[str, Any] = json.loads(await reader.readline())
        finally:
            writer.close()
        in_flight = {int(pid): count for pid, count in answer["in_flight"].items()}
        return State(answer["done"], in_flight)

    async def kill_busy_worker(self, state: State) -> bool:
        """Kill -9 the worker that waits for the most answers, with its version hosts, and start another.

        False when none waits for any.
        """
        for process in self._workers:
            self._check(process)
        family = {process.pid: {process.pid} for process in self._workers}
        for pid in state.in_flight:
            family.get(_ancestor(pid, family), set()).add(pid)
        waiting = {pid: sum(state.in_flight.get(one, 0) for one in pids) for pid, pids in family.items()}
        busy = max(self._workers, key=lambda process: waiting[process.pid])
        count = waiting[busy.pid]
        if not count:
            return False
        self._workers.remove(busy)
        for pid in family[busy.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await busy.wait()
        self.kills += 1
        self.cut += count
        self._workers.append(await self._worker())
        return True

    def _check(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is not None:
            log = (self.folder / "processes.log").read_text("utf-8", "replace")
            message = f"a process of the demonstration ended by itself ({process.returncode}):\n{log[-2000:]}"
            raise RuntimeError(message)

    async def _spawn(self, module: str, *arguments: str) -> asyncio.subprocess.Process:
        with (self.folder / "processes.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *arguments, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log,
                env=os.environ | {SERVICE: str(self.socket), "XDG_CACHE_HOME": str(self.folder / "cache")},
                start_new_session=True,
            )  # fmt: skip


def _ancestor(pid: int, known: Collection[int]) -> int:
    """Return which of some processes another descends from; 0 where that cannot be told."""
    for _ in range(_GENERATIONS):
        if pid in known:
            return pid
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            return 0
    return 0


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(5):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.kill()
        raise
