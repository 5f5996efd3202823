"""Two stored values side by side, in one short text each, cut so that the first difference is seen."""

from __future__ import annotations

import msgspec

from perdure.codec.view import view

MOST = 80
_BEFORE = 20
"""So much of what is the same stands before the first difference."""


def shorten(text: str, start: int = 0) -> str:
    """Return a text from ``start`` on, cut to what fits into a line."""
    text = text if start <= 0 else f"…{text[start:]}"
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"


def both(was: bytes | None, now: bytes | None) -> tuple[str, str]:
    """Return two stored values as people read them."""
    texts = _shown(was), _shown(now)
    if texts[0] == texts[1]:  # what differs is the type, such as a tuple that is a list now
        texts = _raw(was), _raw(now)
    same = next((n for n, (one, two) in enumerate(zip(*texts, strict=False)) if one != two), min(map(len, texts)))
    start = same - _BEFORE if max(map(len, texts)) > MOST else 0
    return shorten(texts[0], start), shorten(texts[1], start)


def _shown(data: bytes | None) -> str:
    return "nothing" if data is None else msgspec.json.encode(view(data)).decode()


def _raw(data: bytes | None) -> str:
    return (data or b"nothing").decode("utf-8", "backslashreplace")
