"""What is printed: tables, JSON, single lines. Stored text can never move the cursor or hide what it is.

INV-1  Nothing that comes from a database, a file or a user reaches a terminal without `escape`.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control characters, invisible format and direction marks, lone surrogates, line and paragraph separators."""
_JOINER = "\u200d"
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_STATUS_COLOUR = {
    "completed": "green", "failed": "red", "parked": "magenta", "running": "cyan", "cancelled": "yellow",
    "terminated": "yellow", "paused": "magenta",
}  # fmt: skip


def escape(text: str) -> str:
    """Return ``text`` as one line with everything that could act on a terminal made visible."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def _is_safe(character: str) -> bool:
    # The joiner holds emoji together and does nothing else.
    return character == _JOINER or unicodedata.category(character) not in _UNSAFE


def _visible(character: str) -> str:
    if _is_safe(character):
        return character
    if character in _NAMED:
        return _NAMED[character]
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def as_json(value: Any) -> str:
    """Return any value as one line of JSON; what JSON does not have becomes text."""
    try:
        text = msgspec.json.encode(value, enc_hook=_plain).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        text = json.dumps(value, default=_plain, skipkeys=True, ensure_ascii=True)
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_json_character, text))


def _json_character(character: str) -> str:
    if _is_safe(character):
        return character
    number = ord(character)
    if number < 0x10000:
        return f"\\u{number:04x}"
    return "".join(f"\\u{unit:04x}" for unit in (0xD7C0 + (number >> 10), 0xDC00 + (number & 0x3FF)))


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    return str(value)


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    click.echo(as_json(value))


def print_line(text: str) -> None:
    """Print one line."""
    click.echo(escape(text))


def print_table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print aligned columns; the head in bold and states in colour on a terminal only."""
    cells = [[escape(cell(value)) for value in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(headers, *cells, strict=True)]
    click.echo(_line([head and click.style(head, bold=True) for head in headers], headers, widths))
    for row in cells:
        click.echo(_line([text and click.style(text, fg=_STATUS_COLOUR.get(text)) for text in row], row, widths))


def print_facts(facts: Iterable[tuple[str, Any]]) -> None:
    """Print names and values, a line each; what is empty is left out."""
    shown = [(escape(name), escape(cell(value))) for name, value in facts if value not in (None, "", {}, [])]
    longest = max((width(name) for name, _ in shown), default=0)
    for name, text in shown:
        padding = " " * (longest - width(name))
        click.echo(f"{click.style(name, bold=True)}{padding}  {click.style(text, fg=_STATUS_COLOUR.get(text))}")


def _line(styled: Sequence[str], plain: Sequence[str], widths: Sequence[int]) -> str:
    padded = (text + " " * (wide - width(raw)) for text, raw, wide in zip(styled, plain, widths, strict=True))
    return "  ".join(padded).rstrip()


def cell(value: Any) -> str:
    """Return a value as a person reads it in a table."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return when(value)
    return as_json(value)


def pairs(tags: dict[str, str]) -> str:
    """Return tags as they are typed."""
    return " ".join(f"{key}={value}" for key, value in tags.items())


def counts(numbers: dict[str, int]) -> str:
    """Return how many there are of each."""
    return " ".join(f"{name} {count}" for name, count in sorted(numbers.items()))


def cut(text: str, most: int) -> str:
    """Return the beginning of a text that is too long for a column."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def when(at: datetime) -> str:
    """Return a time in UTC, to the millisecond."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def ago(seconds: float) -> str:
    """Return a span of time in its two largest units."""
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def width(text: str) -> int:
    """Return how many columns a terminal gives to ``text``."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if character == _JOINER or unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def on_terminal() -> bool:
    """Whether progress may be drawn."""
    return sys.stderr.isatty()
