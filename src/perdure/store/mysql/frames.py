"""Knows when a server has said all it has to say, of bytes that came so far; what it said is for the driver to read.

Frames of the protocol are a length of three bytes, a number, and so many bytes. A result is one frame (done, or an
error), or a count of columns, their descriptions, an end, rows, and another end. Whether more results follow is said in
the last frame of each (https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_query_response.html).
"""

from __future__ import annotations

from typing import Final

_OK, _ERROR, _EOF = 0x00, 0xFF, 0xFE
_MORE_RESULTS: Final = 8
_HEAD: Final = 4
_WHOLE: Final = 0xFFFFFF
"""Length of a frame that goes on in the next one."""
_LONGEST_EOF: Final = 9
_LENGTHS: Final = {0xFC: 3, 0xFD: 4, 0xFE: 9}


def framed(payload: bytes) -> tuple[bytes, int]:
    """Return a command as frames, and what number the first frame of its answer has."""
    parts: list[bytes] = []
    for number in range(len(payload) // _WHOLE + 1):
        part = payload[number * _WHOLE : (number + 1) * _WHOLE]
        parts += (len(part).to_bytes(3, "little"), bytes([number % 256]), part)
    return b"".join(parts), len(payload) // _WHOLE + 1


class Frames:
    """What has come of the answer to one packet of statements.

    Attributes:
        data: all of it.
        complete: whether nothing more is to come.
    """

    __slots__ = ("_at", "_continued", "_ends", "_is_result", "complete", "data")

    def __init__(self) -> None:
        self.data: bytearray = bytearray()
        self.complete: bool = False
        self._at = 0
        self._is_result = False
        """Whether the next frame is inside a result with rows."""
        self._ends = 0
        """Ends it has had: one after its columns, one after its rows."""
        self._continued = False

    def add(self, data: bytes) -> None:
        """Take in what came next."""
        taken = self.data
        taken += data
        while not self.complete and len(taken) - self._at >= _HEAD:
            start = self._at + _HEAD
            size = int.from_bytes(taken[self._at : self._at + 3], "little")
            if len(taken) - start < size:
                return
            self._at = start + size
            continued, self._continued = self._continued, size == _WHOLE
            if not continued:
                self._frame(start, size)

    def _frame(self, start: int, size: int) -> None:
        kind = self.data[start] if size else _OK
        if kind == _ERROR:
            self.complete = True
        elif not self._is_result:
            if kind == _OK:
                self._result_ends(self._status(start + 1))
            else:
                self._is_result, self._ends = True, 0
        elif kind == _EOF and size < _LONGEST_EOF:
            self._ends += 1
            if self._ends > 1:
                self._is_result = False
                self._result_ends(self.data[start + 3])

    def _status(self, at: int) -> int:
        """Return the low byte of the status, which stands behind two numbers."""
        for _ in range(2):
            at += _LENGTHS.get(self.data[at], 1)
        return self.data[at]

    def _result_ends(self, status: int) -> None:
        self.complete = not status & _MORE_RESULTS
