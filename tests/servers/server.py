"""A private database server: a process of the test's own on loopback, that can be killed, stopped and started again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

GUARD = Path(__file__).with_name("guard.py")
LOWERED = GUARD.parents[1] / "lowered.py"
HOST = "127.0.0.1"
PATIENCE_S = 30.0
LOOK_S = 0.02

# A file system in memory keeps what a killed process wrote, as a disk does, and servers are set up as for a disk; but a
# database is made in a quarter of the time.
MEMORY = Path("/dev/shm")
ROOM = 4 << 30
"""Bytes that must be free there."""

# Below the ports that the system hands to outgoing connections: a server that restarts must find its own port free.
PORTS = range(20_000, 32_000)


class ServerError(Exception):
    """A server did not start, or not end."""


def place() -> Path | None:
    """Give the folder that the folders of servers are made in; nothing stands for the system's own choice."""
    if not os.access(MEMORY, os.W_OK):
        return None
    room = os.statvfs(MEMORY)
    return MEMORY if room.f_bavail * room.f_frsize > ROOM else None


def free_port() -> int:
    """Give a port of loopback that nobody listens on."""
    choose = random.SystemRandom()
    for _ in range(1000):
        port = choose.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    message = "no free port on loopback"
    raise ServerError(message)


def lowered(*command: str | Path) -> list[str]:
    """Give the command as it must be started so that it does not run as root."""
    prefix = [sys.executable, "-I", "-S", str(LOWERED)] if os.geteuid() == 0 else []
    return [*prefix, *map(str, command)]


def run_lowered(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """Run a command to its end, not as root. Give what it printed."""
    done = subprocess.run(
        lowered(*command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"LC_ALL": "C"} | (env or {}),
        timeout=PATIENCE_S,
        check=False,
    )
    said = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        message = f"{command[0]} ended with code {done.returncode}\n{said}"
        raise ServerError(message)
    return said


def tree(pid: int) -> Iterator[int]:
    """Give a process and all that descend from it."""
    yield pid
    with suppress(OSError):
        for word in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split():
            yield from tree(int(word))


def stands_still(pid: int) -> bool:
    """Say whether every thread of a process is stopped, or gone."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                state = (task / "stat").read_text("utf-8", "replace").rpartition(") ")[2][:1]
                if state not in "TtZX":
                    return False
    return True


class Server(ABC):
    """One server and its folder. A subclass says how its kind is set up, started and asked."""

    stop_signal = signal.SIGTERM
    """Asks the server to end without waiting for its clients."""

    there: ClassVar[list[Server]] = []
    """Those of this process whose folder is there."""

    def __init__(self) -> None:
        # The name is short: a socket in it has a short path too.
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-", dir=place()))
        self.port = free_port()
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self.own(self.folder)
        self.there.append(self)

    def own(self, path: Path) -> None:
        """Hand a file or folder to the user the server runs as."""
        if os.geteuid() == 0:
            shutil.chown(path, "nobody")

    def write(self, name: str, text: str) -> Path:
        """Write a file that only the server may read."""
        path = self.folder / name
        path.touch(0o600)
        path.write_text(text, "utf-8")
        self.own(path)
        return path

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """Give what starts the server in the foreground."""

    @abstractmethod
    def answers(self) -> bool:
        """Say whether the server takes connections."""

    @property
    def log(self) -> str:
        path = self.folder / "server.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def said_since(self, moment: float) -> bool:
        """Say whether the server has logged something since then, in seconds since 1970."""
        path = self.folder / "server.log"
        return path.exists() and path.stat().st_mtime >= moment

    @property
    def is_running(self) -> bool:
        return self._guard is not None and self._guard.poll() is None

    @property
    def pid(self) -> int:
        """Give the id of the server's first process."""
        if not self.is_running:
            message = "the server is not running"
            raise ServerError(message)
        return self._pid

    def start(self) -> None:
        """Start the server and wait until it answers. After a kill it repairs itself first."""
        with (self.folder / "server.log").open("ab") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD), str(self.folder), *map(str, self.command())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"LC_ALL": "C", "TZ": "UTC"},
                start_new_session=True,
            )
        assert self._guard.stdout is not None
        self._pid = int(self._guard.stdout.readline() or 0)
        deadline = time.monotonic() + PATIENCE_S
        while not self.answers():
            if time.monotonic() > deadline or self._ended_within(LOOK_S):
                self._give_up()

    def stop(self) -> None:
        """End the server in order, without waiting for its clients."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """End all processes of the server at once, as a loss of power to the program would, and wait for their end."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze every process of the server. Its connections stay, and nothing answers once this returns."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + PATIENCE_S
        while not all(stands_still(pid) for pid in tree(self.pid)):  # a thread on another processor goes on for a while
            if time.monotonic() > deadline or self._ended_within(LOOK_S / 10):
                message = "the server does not stand still"
                raise ServerError(message)

    def resume(self) -> None:
        """Let a frozen server go on."""
        self._signal(signal.SIGCONT)

    def await_end(self) -> None:
        """Wait until every process of the server has ended: one that was told to, or that cannot go on."""
        if not self._ended_within(PATIENCE_S):
            message = f"the server did not end\n{self.log[-4000:]}"
            raise ServerError(message)

    def limit_files(self, size: int | None) -> None:
        """Set how many bytes a file of the server may have: to the server, a disk without room. None is no limit.

        Asked by its own user, who may.
        """
        for pid in tree(self.pid):
            with suppress(ServerError):  # it has ended
                run_lowered("prlimit", f"--pid={pid}", f"--fsize={size or 'unlimited'}:unlimited")

    def close(self) -> None:
        """Kill the server and delete its folder. May be called twice."""
        if self.is_running:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self in self.there:
            self.there.remove(self)

    def _signal(self, number: signal.Signals) -> None:
        for pid in tree(self.pid):  # the parent first, so that it starts no more
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _end(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
        self.await_end()

    def _ended_within(self, seconds: float) -> bool:
        """Wait for the guard, which ends when every process of the server has."""
        assert self._guard is not None
        try:
            self._guard.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        for pipe in (self._guard.stdin, self._guard.stdout):
            if pipe is not None:
                pipe.close()
        return True

    def _give_up(self) -> None:
        said = self.log[-4000:]
        self.close()
        message = f"the server did not start\n{said}"
        raise ServerError(message)
