"""What first-party code stands on and no snapshot carries: recorded with a version, and part of it only if pinned."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from perdure.version.config import canonical_json

DepsPolicy = Literal["record", "pin"]

ENGINE: Final = "perdure"
"""This library as a distribution. Old code runs on today's, so its version says nothing; `ENGINE_API` does."""

ENGINE_API: Final = 1
"""Level of this library's interface. What a level offers is only ever added to."""

_LOCKS: Final = (
    "uv.lock", "pylock.toml", "poetry.lock", "pdm.lock", "Pipfile.lock", "requirements.lock", "requirements.txt",
)  # fmt: skip
_PROJECT: Final = ("pyproject.toml", "setup.py", "setup.cfg", ".git")


class Lock(NamedTuple):
    """A lock file: its name, text, and SHA-256 of its bytes in hex."""

    name: str
    text: str
    sha256: str

    @property
    def is_altered(self) -> bool:
        """Whether the text is there and is not that of the hash. Of one that is not in UTF-8 there is no telling."""
        return bool(self.text) and hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest() != self.sha256


class Dependencies(NamedTuple):
    """What a version was recorded with.

    Attributes:
        python: minor version of the interpreter, such as ``3.12``.
        engine_api: level of this library's interface.
        distributions: version of each installed distribution that is reached, by name.
        compiled: SHA-256 of each first-party file of native code, by path.
        lock: the project's lock file, if one was found.
    """

    python: str
    engine_api: int
    distributions: Mapping[str, str]
    compiled: Mapping[str, str]
    lock: Lock | None

    @property
    def pins(self) -> str:
        """What identity takes in where dependencies are pinned: the lock, or else what is installed."""
        if self.lock is not None:
            return f"lock:{self.lock.sha256}"
        return canonical_json([dict(self.distributions), dict(self.compiled)])

    @property
    def env_sha256(self) -> str:
        """The SHA-256, in hex, that names an environment."""
        lock = self.lock.sha256 if self.lock is not None else None
        parts = ["env1", self.python, self.engine_api, dict(self.distributions), dict(self.compiled), lock]
        return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


def record(distributions: Mapping[str, str], compiled: Mapping[str, str], lock: Lock | None) -> Dependencies:
    """Return these dependencies with what this process itself is."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Dependencies(python, ENGINE_API, distributions, dict(sorted(compiled.items())), lock)


def find_lock(start: Path) -> Lock | None:
    """Return the lock file of the project that a folder is in, or None.

    It lies in that folder or above it, up to the folder that is marked as a project's.
    """
    above = (start, *start.parents)
    ends = [number for number, folder in enumerate(above) if any((folder / mark).exists() for mark in _PROJECT)]
    for folder in above[: ends[0] + 1] if ends else (start,):
        for name in _LOCKS:
            file = folder / name
            if file.is_file():
                data = file.read_bytes()
                return Lock(name, data.decode("utf-8", "replace"), hashlib.sha256(data).hexdigest())
    return None
