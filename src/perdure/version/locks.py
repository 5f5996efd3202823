"""What a recorded lock file says exactly, whichever tool wrote it, and what is installed because of it.

A lock is stored as text. Which parts of ``uv.lock`` are installed is for uv to say, which turns it into requirements.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from perdure.version.dependency import ENGINE, Lock
from perdure.version.installed import normal_name

_EXACT: Final = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?P<extras>\[[^\]]*\])?\s*===?\s*(?P<version>[^\s,;*]+)"
)
_PLACED: Final = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*@\s*(?P<url>[a-z+]+://\S+)")
_HASH: Final = re.compile(r"--hash[= ](\S+)")
_COMMENT: Final = re.compile(r"(^|\s)#.*")
_OTHER_MARKERS: Final = ("extras", "dependency_groups")


class Pin(NamedTuple):
    """A distribution as a lock file has it.

    Attributes:
        name: its name, in the normal form.
        version: its version; empty where the lock names a URL.
        text: the requirement, without marker and hashes.
        marker: where it is wanted; empty for everywhere.
        hashes: of the files that will do, such as ``sha256:...``.
        stands_alone: whether the lock says that it is installed; else it is known only what it would be.
    """

    name: str
    version: str
    text: str
    marker: str = ""
    hashes: tuple[str, ...] = ()
    stands_alone: bool = True

    def requirement(self, *, marked: bool) -> str:
        """Return it as a line of requirements."""
        where = f" ; {self.marker}" if marked and self.marker else ""
        return f"{self.text}{where}{''.join(f' --hash={one}' for one in self.hashes)}"


def pins(lock: Lock) -> list[Pin]:
    """Return what a lock file holds.

    Raises:
        ValueError: it is not the file that was recorded, or cannot be read.
    """
    if hashlib.sha256(lock.text.encode()).hexdigest() != lock.sha256:
        raise ValueError(f"the stored {lock.name} does not match {lock.sha256[:8]}")
    read = _READERS.get(lock.name, pins_of_requirements)
    try:
        return list(read(lock.text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # whoever wrote it, the form is not ours
        raise ValueError(f"the stored {lock.name} cannot be read: {type(error).__name__} {error}") from error


def pins_of_requirements(text: str) -> list[Pin]:
    """Return the exact ones of some requirements. Others, and options such as indexes, say nothing exact."""
    found: list[Pin] = []
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        wanted, _, _ = (bare := _COMMENT.sub("", line).strip()).partition(" --hash")
        requirement, _, marker = wanted.partition(" ;") if "://" in wanted else wanted.partition(";")
        hashes = tuple(_HASH.findall(bare))
        requirement, marker = requirement.strip(), marker.strip()
        if exact := _EXACT.fullmatch(requirement):
            found.append(Pin(normal_name(exact["name"]), exact["version"], requirement, marker, hashes))
        elif placed := _PLACED.fullmatch(requirement):
            found.append(Pin(normal_name(placed["name"]), "", requirement, marker, hashes))
    return found


def _of_pylock(text: str) -> Iterable[Pin]:
    """Read PEP 751."""
    for package in tomllib.loads(text)["packages"]:
        if "version" not in package or not ("wheels" in package or "sdist" in package):
            continue  # a folder or a repository: nothing that its name finds again
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
        hashes = [f"{kind}:{value}" for file in files for kind, value in file.get("hashes", {}).items()]
        marker = package.get("marker", "")
        wanted = not any(word in marker for word in _OTHER_MARKERS)
        yield _pin(package["name"], package["version"], hashes, marker, stands_alone=wanted)


def _of_packages(text: str) -> Iterable[Pin]:
    """Read the files of Poetry and PDM, which alone know what of them is installed."""
    found = tomllib.loads(text)
    older = found.get("metadata", {}).get("files", {})
    for package in found.get("package", ()):
        files = package.get("files") or older.get(package["name"], ())
        yield _pin(package["name"], package["version"], [file["hash"] for file in files], stands_alone=False)


def _of_uv(text: str) -> Iterable[Pin]:
    for package in tomllib.loads(text)["package"]:
        files = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]
        hashes = [file["hash"] for file in files if "hash" in file]
        if hashes:
            yield _pin(package["name"], package["version"], hashes, stands_alone=False)


def uv_project(lock: Lock) -> str:
    """Return the project that uv needs beside its lock file; empty where the lock is of none, or of several."""
    packages = tomllib.loads(lock.text)["package"]
    names = [one["name"] for one in packages if "." in (one["source"].get("virtual"), one["source"].get("editable"))]
    return f'[project]\nname = "{names[0]}"\nversion = "0"\n' if names else ""


def _of_pipfile(text: str) -> Iterable[Pin]:
    for name, package in json.loads(text)["default"].items():
        version = str(package.get("version", ""))
        if version.startswith("=="):
            yield _pin(name, version.lstrip("="), package.get("hashes", ()), package.get("markers", ""))


def _pin(name: str, version: str, hashes: Iterable[str], marker: str = "", *, stands_alone: bool = True) -> Pin:
    return Pin(normal_name(name), version, f"{name}=={version}", marker, tuple(hashes), stands_alone)


_READERS: Final[Mapping[str, Callable[[str], Iterable[Pin]]]] = {
    "uv.lock": _of_uv,
    "pylock.toml": _of_pylock,
    "poetry.lock": _of_packages,
    "pdm.lock": _of_packages,
    "Pipfile.lock": _of_pipfile,
}


def requirements(distributions: Mapping[str, str], locked: Iterable[Pin]) -> list[str]:
    """Return lines that name all there is to install, so that nothing has to be resolved. The engine is left out.

    What was recorded comes in the recorded version, checked against the lock's hashes where the lock has that version.
    What the lock has besides was perhaps loaded by name only, and comes as the lock says.

    Args:
        distributions: the versions that were recorded, by name.
        locked: what the lock holds.
    """
    by_name: dict[str, list[Pin]] = {}
    for pin in locked:
        by_name.setdefault(pin.name, []).append(pin)
    recorded = {normal_name(name): version for name, version in distributions.items()}
    lines: list[str] = []
    for name, version in recorded.items():
        fitting = [pin for pin in by_name.get(name, ()) if pin.version in ("", version)]
        lines.append(fitting[0].requirement(marked=False) if fitting else f"{name}=={version}")
    besides = [pin for name, alike in by_name.items() if name not in recorded for pin in alike if pin.stands_alone]
    lines += [pin.requirement(marked=True) for pin in besides]
    return sorted(line for line in lines if normal_name(re.split(r"[\s\[=@;]", line, maxsplit=1)[0]) != ENGINE)
