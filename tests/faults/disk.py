"""A disk as it is after a power cut: rebuilt from a log of the system calls that a process made.

A write reaches the disk when its file is synced. What was written since may be there in any part: none of it, all of
it, or some of its sectors. The shared-memory file is not on a disk at all.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
TRACED = "openat,pwrite64,write,fdatasync,fsync,ftruncate,unlink,unlinkat"
STRACE = ("strace", "-f", "--seccomp-bpf", "-y", "-xx", "-s", "2000000", "-e", f"trace={TRACED}")

_CALL = re.compile(r"^(?:\d+\s+)?(\w+)\((.*)\)\s+=\s+(-?\d+)")
_FILE = re.compile(r"^\d+<((?:\\x[0-9a-f]{2})+|[^>]*)>")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _path(argument: str) -> str:
    match = _FILE.match(argument)
    name = match[1] if match else ""
    return _bytes(name).decode() if name.startswith("\\x") else name


@dataclass
class Call:
    """One system call that changed a file, or an acknowledgement written to standard output."""

    name: str
    path: str
    data: bytes = b""
    offset: int = 0


def calls(log: str) -> Iterator[Call]:
    """Read what strace wrote."""
    for line in log.splitlines():
        match = _CALL.match(line)
        if not match or match[3].startswith("-"):
            continue
        name, arguments = match[1], match[2]
        text = _TEXT.search(arguments)
        data = _bytes(text[1]) if text else b""
        if name in ("unlink", "unlinkat"):
            yield Call("unlink", data.decode())
        elif name == "pwrite64":
            yield Call("write", _path(arguments), data, int(arguments.rsplit(", ", 1)[1]))
        elif name == "write":
            yield Call("ack", _path(arguments), data)
        elif name == "ftruncate":
            yield Call("truncate", _path(arguments), offset=int(arguments.rsplit(", ", 1)[1]))
        elif name in ("fdatasync", "fsync"):
            yield Call("sync", _path(arguments))


@dataclass
class Disk:
    """Files under one folder: what is safe, and what was done since."""

    folder: Path
    safe: dict[str, bytes]
    pending: dict[str, list[Call]] = field(default_factory=dict)

    def apply(self, call: Call) -> None:
        """Take in one call."""
        name = Path(call.path).name
        if Path(call.path).parent != self.folder or name.endswith("-shm"):
            return
        if call.name == "sync":
            self.safe[name] = _replay(self.safe.get(name, b""), self.pending.pop(name, []))
        elif call.name == "unlink":
            # Taken as done at once: what SQLite removes at closing holds nothing that is still needed.
            self.safe.pop(name, None)
            self.pending.pop(name, None)
        elif call.name in ("write", "truncate"):
            self.pending.setdefault(name, []).append(call)

    def cut(self, target: Path, luck: random.Random | None) -> None:
        """Write what is left after a power cut now.

        Args:
            target: an empty folder.
            luck: decides what of the unsynced writes is there; None for nothing of them.
        """
        for name in sorted(self.safe | self.pending):
            content = self.safe.get(name, b"")
            if luck is not None:
                content = _replay(content, list(_torn(self.pending.get(name, []), luck)))
            (target / name).write_bytes(content)


def _replay(content: bytes, pending: list[Call]) -> bytes:
    result = bytearray(content)
    for call in pending:
        if call.name == "truncate":
            del result[call.offset :]
            result.extend(bytes(call.offset - len(result)))
        else:
            result.extend(bytes(max(0, call.offset - len(result))))
            result[call.offset : call.offset + len(call.data)] = call.data
    return bytes(result)


def _torn(pending: list[Call], luck: random.Random) -> Iterator[Call]:
    chance = luck.choice((0.1, 0.5, 0.9, 1.0))
    for call in pending:
        if luck.random() > chance:
            continue
        if call.name == "write" and luck.random() < 0.3:
            for start in range(0, len(call.data), SECTOR):
                if luck.random() < 0.5:
                    yield Call("write", call.path, call.data[start : start + SECTOR], call.offset + start)
        else:
            yield call
