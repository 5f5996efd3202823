"""Named statements: SQL lives in ``store/sql/<backend>/queries.sql``, not in Python.

A statement begins with a line ``-- name: purpose`` and ends before the next such line.
"""

from __future__ import annotations

import re
from importlib.resources import files

_HEAD = re.compile(r"^-- ([a-z_]+): .+$", re.MULTILINE)


def queries(backend: str) -> dict[str, str]:
    """Return a backend's statements by name.

    Raises:
        ValueError: two statements have one name.
    """
    text = (files("perdure.store") / "sql" / backend / "queries.sql").read_text("utf-8")
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
