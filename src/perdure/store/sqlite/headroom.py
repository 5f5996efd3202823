"""Room in the log file ahead of what is written, so that a commit seldom makes the file longer.

Where a file has grown, the file system must record its new length, too, and a wait for the disk takes nearly twice as
long: 272 µs against 155 µs for a page on ext4. SQLite makes its write-ahead log longer with every commit until it
begins again at the front, after a checkpoint. So now and then some zeros are written behind the end; SQLite takes what
is not a frame of its own for the end of the log. See ADR 0034.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LEAST_BYTES = 128 << 10
_MOST_BYTES = 1 << 20
_LONGEST_BYTES = 16 << 20
"""A log that is longer has seen a checkpoint, and begins again at the front as soon as no reader needs it."""
_PIECE_BYTES = 64 << 10
"""Written at once. ext4 keeps a large write in memory as one large folio, and then looks through all of it for every
page that is written into it: 15 µs for each in a folio of 4 MiB, 4 in one of 1 MiB, 2 in pieces of this size."""
_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
"""Both from SQLite's description of the format (https://sqlite.org/fileformat.html, section 4)."""


class Headroom:
    """Keeps room in one log file. Only for connections that wait for the disk.

    Args:
        log: path of the log; it is there as long as a connection is open.
        page_bytes: size of a page.
    """

    def __init__(self, log: Path, page_bytes: int) -> None:
        self._log = log
        self._frame = page_bytes + _FRAME_HEADER_BYTES
        self._file: int | None = None
        self._is_possible = True

    def keep(self) -> None:
        """Make room if a frame is the last thing in the log. The caller holds the lock for writing: nobody writes."""
        if not self._is_possible:
            return
        try:
            if self._file is None:
                self._file = os.open(self._log, os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0))
            length = os.lseek(self._file, 0, os.SEEK_END)  # not fstat, which costs a write: see ADR 0039
            if length < _LONGEST_BYTES and self._ends_in_a_frame(length):
                self._extend(self._file, length)
        except OSError:  # there is no room on the disk, or this file system is of another kind: nothing is lost
            self._is_possible = False

    def _ends_in_a_frame(self, length: int) -> bool:
        return length > _HEADER_BYTES and (length - _HEADER_BYTES) % self._frame == 0

    def _extend(self, file: int, length: int) -> None:
        room = min(max(length // 2, _LEAST_BYTES), _MOST_BYTES)
        if self._ends_in_a_frame(length + room):
            room += 1  # so that every process sees that there is room
        try:
            for start in range(0, room, _PIECE_BYTES):
                os.pwrite(file, bytes(min(_PIECE_BYTES, room - start)), length + start)
        except OSError:
            os.ftruncate(file, length)
            raise

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
        self._file = None
