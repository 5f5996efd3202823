"""Run a server that cannot outlive the process that started it. A script: `python guard.py FOLDER COMMAND ARGUMENT...`.

The server's process id is printed, then the guard waits. When the server ends, so does everything it started, and then
the guard. When the guard's standard input is closed, because its owner is gone however that came about, the server is
killed and its folder is deleted. Should the guard itself be killed, the kernel kills the server.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.lowered import become_nobody

PARENT_DEATH_SIGNAL, CHILD_SUBREAPER = 1, 36
REMOVE_SEGMENT = 0
SEGMENT_LINE = 6
"""Where PostgreSQL notes the key and the number of its segment of System V memory, in the file of its process id."""


def control_process(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def start(command: list[str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        if os.geteuid() == 0:
            become_nobody()
        control_process(PARENT_DEATH_SIGNAL, signal.SIGKILL)  # after the change of user, which would clear it
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(2, 1)
        os.execvp(command[0], command)
    finally:
        os._exit(127)


def children() -> list[int]:
    """Give the children of this process: the server, and what was its child until it ended."""
    pid = os.getpid()
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    return []


def reap(server: int) -> int | None:
    """Collect children that ended. Give the server's exit code if it is among them."""
    code = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == server:
                code = os.waitstatus_to_exitcode(status)
    return code


def end_all() -> None:
    while left := children():
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


def remove_segments(folder: str) -> None:
    """Remove the shared memory of a killed PostgreSQL: the system keeps it for ever, and has room for thousands."""
    for noted in Path(folder).glob("*/postmaster.pid"):
        with suppress(OSError, IndexError, ValueError):
            _, number = noted.read_text("ascii").splitlines()[SEGMENT_LINE].split()
            ctypes.CDLL(None).shmctl(int(number), REMOVE_SEGMENT, None)


def main(folder: str, command: list[str]) -> int:
    control_process(CHILD_SUBREAPER, 1)
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    server = start(command)
    print(server, flush=True)
    while (code := reap(server)) is None:
        ready, _, _ = select.select([0, ended], [], [])
        if ended in ready:
            os.read(ended, 1024)
        elif 0 in ready:
            os.kill(server, signal.SIGKILL)
            end_all()
            remove_segments(folder)
            shutil.rmtree(folder, ignore_errors=True)
            return 0
    end_all()
    remove_segments(folder)
    return abs(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
