"""What a version was recorded with, against what is installed here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from perdure.version.dependency import ENGINE
from perdure.version.installed import version_of

if TYPE_CHECKING:
    from collections.abc import Mapping


class Comparison(NamedTuple):
    """How this environment differs from the recorded one.

    Attributes:
        missing: distributions that are not installed, with the recorded version.
        changed: those of another version, as recorded and as installed.
        python: minor version of this interpreter, where another was recorded.
    """

    missing: dict[str, str]
    changed: dict[str, tuple[str, str]]
    python: str = ""

    @property
    def notices(self) -> list[str]:
        """What differs and does no harm by itself, as sentences."""
        said = [f"{name} was recorded as {then}, {now} is installed" for name, (then, now) in self.changed.items()]
        return [*said, f"it was recorded on another Python, this is {self.python}"] if self.python else said

    def fault(self, *, pinned: bool) -> str:
        """Return what stands in the way of a version, or nothing.

        Args:
            pinned: whether it must be what was recorded.
        """
        if self.missing:
            name, then = next(iter(self.missing.items()))
            others = f" and {len(self.missing) - 1} more" if len(self.missing) > 1 else ""
            return f"{name} (recorded {then}){others}, which is not installed"
        if pinned and self.changed:
            name, (then, now) = next(iter(self.changed.items()))
            return f"{name} {then} and nothing else (pinned), but {now} is installed"
        return ""


def compare(distributions: Mapping[str, str], python: str) -> Comparison:
    """Compare what was recorded with this interpreter and what is installed; the engine itself is always today's."""
    missing: dict[str, str] = {}
    changed: dict[str, tuple[str, str]] = {}
    for name, then in distributions.items():
        if name == ENGINE:
            continue
        now = version_of(name)
        if now is None:
            missing[name] = then
        elif now != then:
            changed[name] = (then, now)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Comparison(missing, changed, "" if python in ("", here) else here)
