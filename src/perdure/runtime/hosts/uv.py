"""Runs ``uv``, the program that builds environments: the one installed beside this Python, or else that on the path."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sysconfig
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_SCRIPTS: Final = sysconfig.get_path("scripts")
_LIMIT_S: Final = 600.0
_LONGEST_WORDS: Final = 400
_FRAMES: Final = r"[\u00d7\u2500-\u257f\u25b6]|^\s*error:"
_FOREIGN: Final = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PYTHONHOME", "UV_PROJECT_ENVIRONMENT", "UV_PYTHON")
"""Variables that would lead uv to another environment than the one it is told."""


class UvFailed(Exception):
    """What was asked of uv cannot be done; says why in one line."""


def find_uv() -> str:
    """Return the program.

    Raises:
        UvFailed: there is none.
    """
    found = shutil.which("uv", path=os.pathsep.join([_SCRIPTS, os.environ.get("PATH", "")]))
    if found is None:
        raise UvFailed("the program uv is not here (pip install 'perdure[uv]')")
    return found


async def run_uv(folder: Path, *args: str | Path) -> str:
    """Run uv in a folder and return what it prints. No project or settings of the current folder count.

    Where packages come from is the place's business: ``UV_*`` variables, and the user's own ``uv.toml``.

    Raises:
        UvFailed: it is not here, or cannot do it.
    """
    uv = find_uv()
    environ = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    return await run_program(folder, environ, uv, "--no-progress", "--color=never", *args)


async def run_online(folder: Path, *args: str | Path) -> str:
    """Do the same from uv's cache alone, and over the network only if that does not do.

    Raises:
        UvFailed: it cannot be done either way.
    """
    try:
        return await run_uv(folder, *args, "--offline")
    except UvFailed:
        return await run_uv(folder, *args)


async def run_program(folder: Path, environ: dict[str, str], *argv: str | Path) -> str:
    """Run a program to its end and return what it prints; it and its children end with this call.

    Raises:
        UvFailed: it cannot be started, fails, or takes too long.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, cwd=folder, env=environ, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise UvFailed(f"{argv[0]} cannot be started: {error}") from error
    try:
        async with asyncio.timeout(_LIMIT_S):
            out, err = await process.communicate()
    except TimeoutError:
        raise UvFailed(f"{_shown(argv)} took longer than {_LIMIT_S:g} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        raise UvFailed(_words(err.decode("utf-8", "replace")) or f"{_shown(argv)} failed ({process.returncode})")
    return out.decode("utf-8", "replace")


def _shown(argv: tuple[str | Path, ...]) -> str:
    return " ".join(map(str, argv[:4]))


def _words(text: str) -> str:
    """Return an error's text in one line, without hints and frames, for it becomes part of a sentence."""
    told = re.split(r"\n\s*hint:", text, maxsplit=1)[0]
    begins = re.search(r"^\s*(\u00d7|error:)", told, re.MULTILINE)
    line = " ".join(re.sub(_FRAMES, " ", told[begins.start() if begins else 0 :]).split())
    line = re.sub(r" caused?( by)?: ", ": ", line, flags=re.IGNORECASE).rstrip(".")
    return line if len(line) <= _LONGEST_WORDS else f"... {line[-_LONGEST_WORDS:]}"
