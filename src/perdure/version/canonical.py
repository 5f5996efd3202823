"""The canonical form of a syntax tree, scheme ``def1``, and its SHA-256.

It is a walk of our own, because the library's ``ast.dump`` gives other text for the same file on other minor versions
of Python. The form holds class names, field names and values. Left out: positions, load or store context, string
prefixes, type comments, and fields that are empty. Comments, blank lines, quotes and line endings never reach the tree.

Invariants:

CAN-1  The form is injective: two trees have one form only if they differ in what is left out.
CAN-2  It does not depend on the minor version of Python: fields are sorted by name, text is written in ASCII (what is
       printable depends on the Unicode tables), and the pieces of an f-string are joined.
CAN-3  It never changes. A change is a new scheme beside this one.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

_LEFT_OUT: Final = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_fields: dict[type[ast.AST], tuple[tuple[str, str], ...]] = {}


def canonical_sha256(tree: ast.AST, collect: Mapping[type[ast.AST], list[Any]] | None = None) -> str:
    """Return the SHA-256, in hex, of the canonical form of a tree.

    Args:
        tree: the tree; it is not changed.
        collect: lists that are filled with the nodes of the classes asked for, in no particular order.
    """
    wanted = collect or {}
    out: list[str] = []
    # A stack and no recursion: a chain of a thousand operators is as deep as it is long.
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        kind = type(node)
        if kind in wanted:
            wanted[kind].append(node)
        out.append(kind.__name__)
        if isinstance(node, ast.Constant | ast.MatchSingleton):
            # An empty text and None are values here, not empty fields.
            out.append(_value(node.value))
            continue
        for name, mark in _fields.get(kind) or _learn(kind):
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                out.append(mark)
                stack.append(value)
            elif isinstance(value, list):
                if value:
                    out.append(mark)
                    _list(_joined(value) if kind is ast.JoinedStr else value, out, stack)
            elif value is not None:
                out.append(mark)
                out.append(_value(value))
    return hashlib.sha256("\n".join(out).encode("ascii")).hexdigest()


def _learn(kind: type[ast.AST]) -> tuple[tuple[str, str], ...]:
    fields = _fields[kind] = tuple((name, f".{name}") for name in sorted(set(kind._fields) - _LEFT_OUT))
    return fields


def _list(items: list[Any], out: list[str], stack: list[ast.AST]) -> None:
    out.append(f"[{len(items)}")
    for item in items:
        if isinstance(item, ast.AST):
            out.append("*")
            stack.append(item)
        else:
            out.append(_value(item))


def _joined(pieces: Iterable[ast.expr]) -> list[ast.expr]:
    """Return the pieces of an f-string with neighbouring texts made one, and empty ones left out."""
    joined: list[ast.expr] = []
    for piece in pieces:
        if isinstance(piece, ast.Constant) and isinstance(piece.value, str):
            if not piece.value:
                continue
            last = joined[-1] if joined else None
            if isinstance(last, ast.Constant) and isinstance(last.value, str):
                joined[-1] = ast.Constant(last.value + piece.value)
                continue
        joined.append(piece)
    return joined


def _value(value: object) -> str:
    if isinstance(value, str):
        return ascii(value)
    if isinstance(value, int) and not isinstance(value, bool):
        # Decimal text of a very long number is refused by Python; small ones are easier to read.
        return str(value) if -(2**63) <= value < 2**63 else hex(value)
    return repr(value)  # bytes, float, complex, bool, None and Ellipsis: the same text everywhere
