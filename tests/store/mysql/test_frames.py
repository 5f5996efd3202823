"""The end of a server's answer is seen where it is, however the bytes come."""

from __future__ import annotations

import pytest

from perdure.store.mysql.frames import Frames, framed

OK = b"\x00\x00\x00\x02\x00\x00\x00"
OK_MORE = b"\x00\x01\x00\x0a\x00\x00\x00"
LARGE_OK = b"\x00\xfd\x00\x00\x01\xfc\x00\x10\x0a\x00\x00\x00"
EOF = b"\xfe\x00\x00\x02\x00"
EOF_MORE = b"\xfe\x00\x00\x0a\x00"
ERROR = b"\xff\x15\x04#28000no"
ROW = b"\x01\x31"
LONG_ROW = b"\xfe" + (300).to_bytes(8, "little") + b"x" * 300
"""Its first byte is that of an end."""
NULL_ROW = b"\xfb"
EMPTY_ROW = b"\x00"
"""An empty text: its first byte is that of an OK."""

ANSWERS = {
    "done": [OK],
    "several": [OK_MORE, LARGE_OK, OK],
    "an error": [ERROR],
    "an error after others": [OK_MORE, OK_MORE, ERROR],
    "rows": [b"\x01", b"column", EOF, ROW, EMPTY_ROW, NULL_ROW, LONG_ROW, EOF],
    "no rows": [b"\x02", b"column", b"column", EOF, EOF],
    "rows between": [OK_MORE, b"\x01", b"column", EOF_MORE, ROW, EOF_MORE, b"\x01", b"column", EOF, ROW, EOF_MORE, OK],
    "an error in the middle of rows": [b"\x01", b"column", EOF, ROW, ERROR],
    "a frame that goes on": [b"\x01", b"column", EOF, b"\xfe" + b"x" * 0xFFFFFE, EOF, ROW, EOF],
}


def encoded(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(3, "little") + bytes([n % 256]) + frame for n, frame in enumerate(frames, 1))


@pytest.mark.parametrize("frames", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("piece", [1, 3, 7, 1 << 30])
def test_it_is_complete_with_its_last_byte_and_not_before(frames: list[bytes], piece: int) -> None:
    data = encoded(frames)
    piece = max(piece, len(data) // 10_000)
    found = Frames()
    for start in range(0, len(data), piece):
        assert not found.complete
        found.add(data[start : start + piece])
    assert found.complete
    assert found.data == data


def test_a_command_is_cut_into_frames() -> None:
    assert framed(b"\x03select") == (b"\x07\x00\x00\x00\x03select", 1)
    whole, number = framed(b"x" * 0xFFFFFF)
    assert (whole[:4], whole[-4:], number) == (b"\xff\xff\xff\x00", b"\x00\x00\x00\x01", 2)
