"""Where the figures are from: without it they cannot be compared with anybody's."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import apsw

from perdure import __version__
from perdure.store.sqlite.place import file_system

IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def surroundings(folder: Path) -> dict[str, str]:
    """Return versions, processors, how busy the machine is, and what the folder is on."""
    return {
        "perdure": __version__,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": str(os.cpu_count() or 0),
        "load": f"{os.getloadavg()[0]:.1f}",
        "disk": file_system(str(folder.resolve())) or "unknown",
    }


def warnings(found: dict[str, str]) -> list[str]:
    """Return why the figures about to be taken would mislead."""
    told = []
    if found["disk"] in IN_MEMORY:
        told.append(f"the folder is in memory ({found['disk']}): nothing here says anything about a disk")
    if float(found["load"]) > 0.5 * int(found["processors"]):
        told.append(f"the machine is busy (load {found['load']}): figures will be low, and ratios uncertain")
    return told
