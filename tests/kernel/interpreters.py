"""Find other Python versions on this machine, and give them what perdure needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
WANTED = ("3.11", "3.12", "3.13", "3.14")
NEEDS = ("msgspec", "apsw", "click")


def environment(hash_seed: int = 0) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": str(hash_seed)}


def _candidates(version: str) -> list[str]:
    named = shutil.which(f"python{version}")
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"), reverse=True)
    return [path for path in (named, *map(str, installed)) if path]


def _starts(python: str, code: str) -> bool:
    try:
        done = subprocess.run([python, "-c", code], env=environment(), capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _try(argv: list[str]) -> None:
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(argv, capture_output=True, timeout=120, check=False)


def _equipped(python: str, version: str, cache: Path) -> str | None:
    """Return an interpreter that can import what is needed: the one given, or a virtual environment made of it."""
    ready = f"import {', '.join(NEEDS)}"
    if _starts(python, ready):
        return python
    own = cache / f"venv-{version}"
    inside = str(own / "bin" / "python")
    if not _starts(inside, ready):
        _try([python, "-m", "venv", "--clear", str(own)])
        if Path(inside).exists():
            install = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", *NEEDS]
            _try(install)
    return inside if _starts(inside, ready) else None


def find(cache: Path) -> dict[str, str]:
    """Return version to interpreter for every other minor version that could be made to work."""
    found: dict[str, str] = {}
    for version in WANTED:
        exact = f"import sys; sys.exit(sys.version_info[:2] != {tuple(map(int, version.split('.')))})"
        for python in [] if version == HERE else _candidates(version):
            if _starts(python, exact) and (usable := _equipped(python, version, cache)):
                found[version] = usable
                break
    return found
