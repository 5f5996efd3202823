"""Which distributions are installed, and which of them provide an import.

`importlib.metadata` comes slowly, and reads all there is to know of a distribution. So it is imported where it is
asked, and asked for what is wanted only: a worker that starts need not wait for all that is installed beside it.
"""

from __future__ import annotations

import inspect
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from importlib.metadata import Distribution

_REQUIREMENT: Final = re.compile(r"\s*(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[(?P<extras>[^\]]*)\])?")
_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")


class Installed:
    """The distributions that are installed here, read once for as long as no folder of them changes."""

    def __init__(self) -> None:
        self._folders: tuple[tuple[str, int], ...] = tuple((folder, _changed_at(folder)) for folder in sys.path)

    def reached(self, tops: Iterable[str]) -> dict[str, str]:
        """Return name and version of the distributions that provide these imports, and of all they require.

        Requirements for another platform or Python are taken in where they are installed.
        """
        return dict(_reached(self._folders, tuple(sorted(tops))))


def version_of(name: str) -> str | None:
    """Return the version of a distribution that is installed here, or None."""
    from importlib import metadata  # noqa: PLC0415 - see the module

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def normal_name(name: str) -> str:
    """Return the form of a distribution's name that all ways to write it share."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


@lru_cache(maxsize=64)
def _reached(folders: tuple[tuple[str, int], ...], tops: tuple[str, ...]) -> Mapping[str, str]:
    from importlib import metadata  # noqa: PLC0415 - see the module

    found: dict[str, str] = {}
    todo = [(name, frozenset[str]()) for name in providers(folders, tops)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        wanted = todo.pop()
        if (key := (normal_name(wanted[0]), wanted[1])) in seen:
            continue
        seen.add(key)
        try:
            distribution = metadata.distribution(wanted[0])
        except metadata.PackageNotFoundError:
            continue
        found[key[0]] = distribution.version
        todo += [need for text in distribution.requires or () if (need := _requirement(text, wanted[1]))]
    return dict(sorted(found.items()))


def providers(folders: tuple[tuple[str, int], ...], tops: Iterable[str]) -> Iterator[str]:
    """Give the names of the distributions that `importlib.metadata.packages_distributions` has for these imports."""
    wanted = frozenset(tops)
    for offer in _offers(folders):
        if wanted.isdisjoint(offer.names):
            continue
        if offer.is_declared or not wanted.isdisjoint(_inferred(offer.distribution)):
            yield offer.distribution.metadata["Name"]


class _Offer(NamedTuple):
    """A distribution, and what it provides: as it declares, or not less than what its files say."""

    distribution: Distribution
    names: frozenset[str]
    is_declared: bool


@lru_cache(maxsize=1)
def _offers(folders: tuple[tuple[str, int], ...]) -> tuple[_Offer, ...]:  # noqa: ARG001 - when to read anew
    from importlib import metadata  # noqa: PLC0415 - see the module

    return tuple(map(_offer, metadata.distributions()))


def _offer(distribution: Distribution) -> _Offer:
    declared = (distribution.read_text("top_level.txt") or "").split()
    if declared:
        return _Offer(distribution, frozenset(declared), is_declared=True)
    listed = distribution.read_text("RECORD")
    if listed is None:
        return _Offer(distribution, _inferred(distribution), is_declared=False)
    heads = {line.partition("/")[0] for line in listed.splitlines()}  # such as `shop`, or `six.py,sha256=...`
    return _Offer(
        distribution, frozenset(re.split(r"[.,]", head.lstrip('"'), maxsplit=1)[0] for head in heads), is_declared=False
    )


@lru_cache(maxsize=64)
def _inferred(distribution: Distribution) -> frozenset[str]:
    files = distribution.files or ()
    if sys.version_info < (3, 12):
        return frozenset(file.parts[0] if len(file.parts) > 1 else file.stem for file in files if file.suffix == ".py")
    names = (file.parts[0] if len(file.parts) > 1 else inspect.getmodulename(file) or "" for file in files)
    return frozenset(name for name in names if "." not in name)


def _changed_at(folder: str) -> int:
    try:
        return Path(folder or ".").stat().st_mtime_ns
    except OSError:
        return 0


def _requirement(text: str, extras: frozenset[str]) -> tuple[str, frozenset[str]] | None:
    """Return name and extras of a requirement, or None where it is for an extra that nobody asked for."""
    named, _, marker = text.partition(";")
    match = _REQUIREMENT.match(named)
    asked = _EXTRA.findall(marker)
    if match is None or (asked and not extras.intersection(map(normal_name, asked))):
        return None
    return match["name"], frozenset(normal_name(one) for one in (match["extras"] or "").split(",") if one.strip())
