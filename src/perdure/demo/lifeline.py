"""How a child process of the demonstration learns that its parent has ended, however it ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys


async def until_parent_ends() -> None:
    """Wait until standard input, a pipe that only the parent holds, is closed; or for a request to stop."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin.fileno())
            ended.set()

    loop.add_reader(sys.stdin.fileno(), read)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    await ended.wait()
