"""The path of a process that runs an old version: without deployed first-party code, and so for its child processes.

The guard is what must be right; this is the second line, and the first for what other programs do with the path.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure.version.locate import is_installed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

SNAPSHOT: Final = "PERDURE_SNAPSHOT"
"""Environment variable that tells child processes what the guard must know. Nothing in it is secret."""
_INSIDE: Final = str(Path(__file__).with_name("inside"))
_ENGINE: Final = Path(__file__).resolve().parents[2]


def cleaned(entries: Iterable[str], deployed: Collection[str], names: Collection[str]) -> list[str]:
    """Return a path without what leads to deployed first-party code.

    Args:
        entries: folders; what is not absolute depends on the current folder and is left out.
        deployed: folders that are known to hold such code.
        names: first-party packages and modules, of whatever version: a folder that holds one is left out, unless it is
            one of installed distributions, or this library's own.
    """
    known = {Path(folder).resolve() for folder in deployed}
    tops = {name.partition(".")[0] for name in names}
    return [entry for entry in entries if Path(entry).is_absolute() and _stays(Path(entry).resolve(), known, tops)]


def _stays(entry: Path, known: Collection[Path], tops: Iterable[str]) -> bool:
    if entry == _ENGINE or is_installed(entry):
        return True
    return entry not in known and not any((entry / top).is_dir() or (entry / f"{top}.py").is_file() for top in tops)


def settle(
    tree: Path, deployed: Collection[str], *, path: Iterable[str] | None, roots: Collection[str], version: str,
    elsewhere: Mapping[str, str], distributions: Collection[str],
) -> None:  # fmt: skip
    """Make an unpacked tree the first place to import from, here and in child processes, and take deployed code away.

    Args:
        tree: where the version is unpacked.
        deployed: folders of deployed first-party code.
        path: the path to begin with; this process's own by default.
        roots: names of the version's first-party packages and modules.
        version: what it is, for messages.
        elsewhere: see `Guard`.
        distributions: those recorded for the version.
    """
    names = {*roots, *elsewhere}
    sys.path[:] = [str(tree), *cleaned(sys.path if path is None else path, deployed, names)]
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    os.environ["PYTHONPATH"] = os.pathsep.join([_INSIDE, str(tree), *cleaned(inherited, deployed, names)])
    told = [str(tree), sorted(roots), version, dict(elsewhere), sorted(distributions)]
    os.environ[SNAPSHOT] = json.dumps(told)
