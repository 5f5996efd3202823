"""A process that has imported what old versions stand on and nothing of theirs; it forks hosts in milliseconds.

It has one thread, because only that one would survive a fork: after each import it counts, and where there are more it
names the culprit and ends. It ends with its worker too: standard input is a socket to it.

    worker → server   one line of JSON: `Warmth`;  then for each host one byte, with three pipes: its 0, 1 and 2
    server → worker   one line of JSON for each event: `News`
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from perdure.errors import NotInSnapshot
from perdure.hosting import process
from perdure.loading.guard import Guard
from perdure.loading.paths import cleaned
from perdure.runtime.hosts.warmth import News, Warmth

if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Import, then fork for as long as the worker is there."""
    worker = socket.socket(fileno=os.dup(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warmth = msgspec.json.decode(_line(worker), type=Warmth)
    culprit = _import(warmth)
    _tell(worker, News("unfit", module=culprit) if culprit else News("warm"))
    if culprit:
        return
    gc.collect()
    gc.freeze()  # else the first collection in each child would copy all of it
    if _serve(worker):
        process.main()


def _import(warmth: Warmth) -> str:
    """Import all modules there are; return the first after which there is more than one thread, or nothing."""
    first_party = dict.fromkeys(warmth.first_party, "")
    sys.path[:] = cleaned(sys.path if warmth.path is None else warmth.path, warmth.deployed, warmth.first_party)
    # A library may look for plug-ins, and find the deployed code.
    guard = Guard(
        os.devnull, (), version="the fork server", elsewhere=first_party, provided=lambda _name: False,
        refuse=lambda name, text: NotInSnapshot(text, name=name),
    )  # fmt: skip
    guard.install()
    for name in warmth.modules:
        # What cannot be imported here is not needed to fork: the host imports it itself, and says what is wrong.
        with suppress(Exception):
            importlib.import_module(name)
        if _threads() > 1:
            return name
    guard.remove()
    return ""


def _threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def _serve(worker: socket.socket) -> bool:
    """Fork until the worker is gone. True in a child: it is a host now."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, _nothing)
    while True:
        ready: list[int] = select.select([worker.fileno(), woken], [], [])[0]
        if woken in ready:
            os.read(woken, 512)
            _reap(worker)
        if worker.fileno() in ready:
            asked, pipes, _, _ = socket.recv_fds(worker, 1, 3)
            if not asked:
                return False
            child = os.fork()
            if not child:
                _become(pipes, worker, woken, waker)
                return True
            for pipe in pipes:
                os.close(pipe)
            _tell(worker, News("forked", pid=child))


def _become(pipes: list[int], worker: socket.socket, woken: int, waker: int) -> None:
    """Let go of everything that is the server's."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    worker.close()
    os.close(woken)
    os.close(waker)
    os.setsid()
    for number, pipe in enumerate(pipes):
        os.dup2(pipe, number)
        os.close(pipe)


def _reap(worker: socket.socket) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            _tell(worker, News("ended", pid=ended[0], code=os.waitstatus_to_exitcode(ended[1])))


def _tell(worker: socket.socket, news: News) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        worker.sendall(msgspec.json.encode(news) + b"\n")


def _line(worker: socket.socket) -> bytes:
    """Read a line and not a byte more: pipes come with the next one."""
    data = b""
    while not data.endswith(b"\n"):
        piece = worker.recv(65536, socket.MSG_PEEK)
        if not piece:
            raise SystemExit(0)
        data += worker.recv(piece.index(b"\n") + 1 if b"\n" in piece else len(piece))
    return data


def _nothing(_number: int, _frame: FrameType | None) -> None:
    pass


if __name__ == "__main__":
    main()
