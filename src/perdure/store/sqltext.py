"""Named statements: SQL lives in ``store/sql/``, not in Python.

What all backends say alike is in ``queries.sql`` and ``catalog.sql`` there, what one says in its own way in the files
of these names in its own folder. A statement begins with ``-- name: purpose`` and ends before the next such line.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_name("sql")
_FILES = ("queries.sql", "catalog.sql")
_HEAD = re.compile(r"^-- ([a-z_]+): .+$", re.MULTILINE)
_SCHEMA = "perdure."
_ONE_OF = "in (?)"


def queries(backend: str, *, schema: str = "", one_of: str = _ONE_OF) -> dict[str, str]:
    """Return a backend's statements by name: its own, and those that all of them have.

    Args:
        backend: name of its folder.
        schema: what the names of its tables begin with.
        one_of: how it looks in a list of texts.

    Raises:
        ValueError: two statements have one name.
    """
    own = [(FOLDER / backend / name).read_text("utf-8") for name in _FILES]
    alike = [(FOLDER / name).read_text("utf-8").replace(_SCHEMA, schema).replace(_ONE_OF, one_of) for name in _FILES]
    found: dict[str, str] = {}
    for text in (*own, *alike):
        _, *parts = _HEAD.split(text)  # what stands before the first statement is about the file
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                message = f"two statements are called {name}"
                raise ValueError(message)
            found[name] = body.strip().removesuffix(";")
    return found
