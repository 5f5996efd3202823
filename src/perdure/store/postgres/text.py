"""Texts that PostgreSQL cannot hold, as ones that it can.

It refuses the character NUL. Here NUL is written as two characters U+0001 and U+0001 as U+0001 U+0002: every text has
one form, no two texts have the same, and their order stays what it was.
"""

from __future__ import annotations

ESCAPE = "\1"


def escaped(text: str) -> str:
    """Return the form in which ``text`` is stored."""
    if "\0" in text or ESCAPE in text:
        return text.replace(ESCAPE, "\1\2").replace("\0", "\1\1")
    return text


def unescaped(stored: str) -> str:
    """Return the text that is stored as ``stored``."""
    return stored.replace("\1\1", "\0").replace("\1\2", ESCAPE)


def unescaped_row(row: tuple[object, ...]) -> tuple[object, ...]:
    """Return a row with its texts as they were given."""
    for value in row:
        if type(value) is str and ESCAPE in value:
            return tuple(unescaped(one) if isinstance(one, str) else one for one in row)
    return row
