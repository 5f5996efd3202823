"""Named statements: SQL lives in ``store/sql/<backend>/queries.sql`` and ``catalog.sql``, not in Python.

A statement begins with a line ``-- name: purpose`` and ends before the next such line.
"""

from __future__ import annotations

import re
from importlib.resources import files

_FILES = ("queries.sql", "catalog.sql")
_HEAD = re.compile(r"^-- ([a-z_]+): .+$", re.MULTILINE)


def queries(backend: str) -> dict[str, str]:
    """Return a backend's statements by name.

    Raises:
        ValueError: two statements have one name.
    """
    folder = files("perdure.store") / "sql" / backend
    text = "\n".join(file.read_text("utf-8") for name in _FILES if (file := folder / name).is_file())
    found: dict[str, str] = {}
    heads = list(_HEAD.finditer(text))
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        body = text[head.end() : following.start() if following else len(text)]
        name = head[1]
        if name in found:
            message = f"two statements are called {name}"
            raise ValueError(message)
        found[name] = body.strip().removesuffix(";")
    return found
