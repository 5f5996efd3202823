"""Labels of versions: semantic versions (semver.org, 2.0.0), their order, and ranges of them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from perdure.errors import InvalidValue

NO_SEMVER: Final = "0.0.0"
"""What a workflow without a version is labelled from."""
SHORT: Final = 8
"""Digits of a hash that are shown, and the fewest that name a version."""

_NUMBER: Final = r"(?:0|[1-9]\d*)"
_PART: Final = r"(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER: Final = re.compile(
    rf"(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER})"
    rf"(?:-(?P<pre>{_PART}(?:\.{_PART})*))?(?:\+(?P<build>[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?",
    re.ASCII,
)
_PARTIAL: Final = re.compile(rf"{_NUMBER}(?:\.{_NUMBER})?", re.ASCII)
_COMPARATOR: Final = re.compile(r"\s*(?P<sign>>=|<=|==|!=|>|<|=)\s*(?P<version>\S+)\s*")
_LONGEST: Final = 100
_HOLDS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt, "!=": operator.ne, "==": operator.eq,
    "=": operator.eq,
}  # fmt: skip


class Precedence(NamedTuple):
    """Where a version stands in the order; compared as the tuple it is. Build metadata has no part in it.

    Attributes:
        is_release: False for a pre-release, which is below its release.
        pre: the parts of a pre-release: numbers, below words, in pairs that compare so.
    """

    major: int
    minor: int
    patch: int
    is_release: bool
    pre: tuple[tuple[bool, int, str], ...]


class Semver(NamedTuple):
    """A semantic version: its text and its parts."""

    text: str
    precedence: Precedence
    build: str

    @property
    def is_pre_release(self) -> bool:
        """Whether it is marked as one that comes before a release."""
        return not self.precedence.is_release

    def with_hash(self, digits: str) -> str:
        """Return a label that tells content apart: the version with digits of a hash as build metadata."""
        return f"{self.text}{'.' if self.build else '+'}{digits}"


@lru_cache(maxsize=4096)  # whoever looks at a workflow looks at all of its labels
def parse(text: str, what: str = "version") -> Semver:
    """Return a semantic version.

    Raises:
        InvalidValue: the text is none.
    """
    match = _SEMVER.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise InvalidValue(f"{what}={text!r} is no semantic version such as 1.4.0 or 2.0.0-rc.1")
    parts = match["pre"].split(".") if match["pre"] else []
    pre = tuple((False, int(part), "") if part.isdigit() else (True, 0, part) for part in parts)
    precedence = Precedence(int(match["major"]), int(match["minor"]), int(match["patch"]), not pre, pre)
    return Semver(text, precedence, match["build"] or "")


class Range(msgspec.Struct, frozen=True):
    """Versions between bounds, such as ``>=1.2,<2``."""

    comparators: tuple[tuple[str, Precedence], ...]

    def __contains__(self, version: Semver) -> bool:
        """Whether a version is in it. A pre-release is only where a bound is a pre-release of the same number."""
        place = version.precedence
        if not place.is_release and not any(
            not bound.is_release and bound[:3] == place[:3] for _, bound in self.comparators
        ):
            return False
        return all(_HOLDS[sign](place, bound) for sign, bound in self.comparators)


def is_range(text: str) -> bool:
    """Whether a text is meant as a range: it begins with a comparison."""
    return text.lstrip()[:1] in ("<", ">", "=", "!")


def parse_range(text: str) -> Range:
    """Return a range: comparisons that all hold, separated by commas. ``1.2`` is ``1.2.0`` in one.

    Raises:
        InvalidValue: the text is no range.
    """
    comparators: list[tuple[str, Precedence]] = []
    for part in text.split(","):
        match = _COMPARATOR.fullmatch(part)
        if match is None:
            raise InvalidValue(f"version={text!r} is no range such as '>=1.2,<2'")
        version = match["version"]
        if _PARTIAL.fullmatch(version):
            version += ".0" * (2 - version.count("."))
        comparators.append((match["sign"], parse(version).precedence))
    return Range(tuple(comparators))
