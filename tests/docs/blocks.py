"""Read the fenced blocks of Markdown pages, and turn them into programs and sessions.

* Every ``python`` block is compiled.
* The ``python`` blocks of a page that has no session make one program, in order, which is run. A block after the
  comment ``<!-- not run -->`` is left out.
* On a page with ``console`` blocks, a block whose first line is ``# name.py`` is that file, and one that begins with
  ``# name.py: function`` takes the place of that function in it. The ``console`` blocks are typed, in order.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.house.tree import ROOT, files

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = re.compile(
    r"(?P<skip><!-- not run -->\s*\n)?^```(?P<language>[a-z]*)[^\n]*\n(?P<text>.*?)^```\s*$", re.MULTILINE | re.DOTALL
)
_FILE = re.compile(r"# (?P<name>\w+\.py)(: (?P<function>\w+))?")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str
    line: int
    language: str
    text: str
    run: bool

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> tuple[str, str | None] | None:
        """The file it is, and the function it replaces there."""
        found = _FILE.fullmatch(self.text.partition("\n")[0])
        return None if found is None else (found["name"], found["function"])


def pages() -> tuple[Path, ...]:
    """Return every page for readers: README, ARCHITECTURE and the documentation."""
    return (ROOT / "README.md", ROOT / "ARCHITECTURE.md", *files(".md", "docs"))


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    name = str(page.relative_to(ROOT))
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 1
        yield Block(name, line, found["language"], found["text"], found["skip"] is None)


def is_session(page: Path) -> bool:
    return any(block.language == "console" for block in blocks(page))


def program(page: Path) -> str:
    """Return the page's runnable blocks as one program."""
    return "\n".join(block.text for block in blocks(page) if block.language == "python" and block.run)


def replaced(source: str, name: str, text: str) -> str:
    """Return ``source`` with the function ``name``, decorators included, replaced by ``text``."""
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            return "".join([*lines[: first - 1], text, *lines[node.end_lineno :]])
    message = f"no function {name!r}"
    raise LookupError(message)
