"""Type the ``console`` blocks of a page, and compare what comes out with what the page says."""

from __future__ import annotations

import re
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.docs.blocks import blocks, replaced

if TYPE_CHECKING:
    from tests.docs.blocks import Block
    from tests.process import Child, Spawner

PROGRAMS = {
    "python": (sys.executable, "-u"),
    "perdure": (sys.executable, "-m", "perdure"),
    "sleep": ("sleep",),
}
ANY = "..."
"""Stands for any text in a line that a page shows."""


class Session:
    """One page, typed in a folder of its own."""

    def __init__(self, spawn: Spawner, folder: Path) -> None:
        self._spawn = spawn
        self._folder = folder
        self._jobs: dict[int, Child] = {}

    def play(self, page: Path) -> None:
        for block in blocks(page):
            if block.language == "python" and block.file is not None:
                self._write(block)
            elif block.language == "console":
                for command, shown in _commands(block.text):
                    self._type(block, command, shown)

    def _write(self, block: Block) -> None:
        assert block.file is not None
        name, function = block.file
        path = self._folder / name
        text = block.text
        if function is not None:
            text = replaced(path.read_text("utf-8"), function, text.partition("\n")[2])
        path.write_text(text, "utf-8")

    def _type(self, block: Block, command: str, shown: list[str]) -> None:
        if command.startswith("kill"):
            child = self._jobs.pop(int(command.rpartition("%")[2]))
            child.send(signal.SIGKILL if "-9" in command else signal.SIGTERM)
            child.process.wait(20)
            return
        words = shlex.split(command.removesuffix("&"))
        around = {"XDG_CACHE_HOME": str(self._folder / "cache")}
        while "=" in words[0]:
            name, _, around[name] = words.pop(0).partition("=")
        child = self._spawn(*PROGRAMS[words[0]], *words[1:], env=around, folder=self._folder)
        if command.endswith("&"):
            self._jobs[max(self._jobs, default=0) + 1] = child
            for line in shown:
                _wait(child, line, f"{block}: `{command}`")
            return
        said = child.finish(60)
        printed = said.out + said.err
        for line in shown:
            assert _shows(printed, line), f"{block}: `{command}` does not print {line!r} but\n{printed}"


def _wait(child: Child, line: str, what: str) -> None:
    """Wait until a program in the background has printed a line."""
    deadline = time.monotonic() + 20
    while not _shows(child.out + child.err, line):
        assert time.monotonic() < deadline, f"{what} does not print {line!r} but\n{child.out}{child.err}"
        child.listen(0.05)


def _commands(text: str) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:].strip(), []))
        elif line.strip():
            found[-1][1].append(line.strip())
    return found


def _shows(printed: str, line: str) -> bool:
    """Whether some line of the output is the one shown; spans of blanks count as one, and ``...`` as anything."""
    parts = [r"\s+".join(map(re.escape, part.split())) for part in line.split(ANY)]
    return re.search(r".*".join(parts), printed) is not None
