"""What one source file says, found by parsing it: its canonical hash and what it refers to.

A scan depends on nothing but the bytes, so it is kept with them, by their SHA-256, and a file that was seen before is
read and hashed but not parsed again.
"""

from __future__ import annotations

import ast
import hashlib
import threading
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import msgspec

from perdure.version.canonical import canonical_sha256
from perdure.version.reference import ANYTHING, Computed, References, drop_labels, references, wanted_nodes

SCHEME: Final = "def1"
"""Name of the way identity is computed. It is stored beside every hash."""
_FORMAT: Final = 1
_TRIES: Final = 20
_parsing = threading.Lock()


class Scan(NamedTuple):
    """What is known of a file from its text.

    Attributes:
        canonical: SHA-256 of the canonical syntax tree; of the bytes where they are no Python for this interpreter.
        references: what it refers to.
        parsed: False where this interpreter could not parse it; such a scan is never kept.
    """

    canonical: str
    references: References
    parsed: bool = True


ScanLookup = Callable[[Collection[str]], Mapping[str, Scan]]
"""Gives the scans that are kept for some of these SHA-256 of raw bytes."""


def no_scans(_raw: Collection[str]) -> Mapping[str, Scan]:
    """Know no scan: every file is parsed."""
    return {}


def scan(data: bytes) -> Scan:
    """Return what a file's bytes say. Nothing in them is executed."""
    try:
        tree = parse_source(data)
    except (SyntaxError, ValueError):
        # A later syntax, or no Python at all. This interpreter cannot import it either, so it refers to nothing.
        return Scan(of_bytes(data), References(), parsed=False)
    except (RecursionError, MemoryError):
        # It may well be imported, only not looked into.
        return Scan(of_bytes(data), References(computed=(Computed(1, ANYTHING),)), parsed=False)
    if b"workflow" in data and b"version" in data:
        drop_labels(tree)
    nodes = wanted_nodes()
    canonical = canonical_sha256(tree, nodes)
    return Scan(canonical, references(nodes))


def parse_source(data: bytes) -> ast.Module:
    """Return the syntax tree. One thread at a time: CPython 3.11 counts the depth of all threads together."""
    for _ in range(_TRIES):
        with _parsing, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a doubtful escape in somebody's text is not ours to report
            try:
                return ast.parse(data)
            except SystemError:  # another thread of the program parsed at the same moment
                continue
    return ast.parse(data)


def of_bytes(data: bytes) -> str:
    """Return the canonical hash of a file that cannot be parsed."""
    return hashlib.sha256(b"bytes\n" + data).hexdigest()


def encode(scan: Scan) -> bytes:
    """Return the JSON in which a scan is kept."""
    return msgspec.json.encode((_FORMAT, SCHEME, scan.canonical, scan.references))


def decode(data: bytes | str) -> Scan | None:
    """Return the scan that was kept, or None where another release of this library kept it in another way."""
    try:
        form, scheme, canonical, found = msgspec.json.decode(data, type=tuple[int, str, str, msgspec.Raw])
        if (form, scheme) != (_FORMAT, SCHEME):
            return None
        return Scan(canonical, msgspec.json.decode(found, type=References))
    except msgspec.MsgspecError:
        return None
