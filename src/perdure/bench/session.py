"""Runs the figures one after the other, each in a process of its own, in a folder that is removed afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from perdure.bench.figure import Figure
from perdure.bench.site import SCRATCH, open_site
from perdure.bench.workload import ALL, Load
from perdure.errors import InvalidValue, UsageError

BEFORE = {"recovery": "doomed", "idle": "lull"}
"""What has to be there before a figure can be taken, and who makes it."""


class Taken(NamedTuple):
    """One group of figures."""

    group: str
    figures: list[Figure]


def check_groups(groups: list[str]) -> None:
    """Refuse a name under which nothing is measured. Raises `InvalidValue`."""
    unknown = [group for group in groups if group not in ALL]
    if unknown:
        message = f"nothing is measured under the name {unknown[0]!r}; there are {', '.join(ALL)}"
        raise InvalidValue(message)


def bench(
    folder: Path, load: Load, groups: list[str], tell: Callable[[str], None], url: str = "sqlite:"
) -> Iterator[Taken]:
    """Measure the machine, then every group, and give the figures as they come.

    Args:
        folder: on the disk that is to be measured; everything is in a new folder in it, removed at the end.
        load: how much of everything.
        groups: names out of `perdure.bench.workload.ALL`.
        tell: called with the name of what is about to be measured.
        url: the database; of a file only that it is one.

    Raises:
        InvalidValue: there is no such group.
        UsageError: the folder cannot be used.
    """
    check_groups(groups)
    with _scratch(folder, url) as scratch:
        tell("machine")
        yield Taken("machine", _child("machine", scratch, replace(load, rounds=min(load.rounds, 3)), url))
        for group in groups:
            tell(group)
            place = scratch / group
            place.mkdir()
            made = _child(BEFORE[group], place, load, url) if group in BEFORE else []
            yield Taken(group, made + _child(group, place, load, url))
            open_site(url, place).clear()
            shutil.rmtree(place)


def _child(figure: str, folder: Path, load: Load, url: str) -> list[Figure]:
    argv = [
        sys.executable,
        "-m",
        "perdure.bench.child",
        figure,
        str(folder),
        msgspec.json.encode(asdict(load)).decode(),
        url,
    ]
    lifeline, held = os.pipe()  # the child ends when the end held here closes, however this process ends
    try:
        with subprocess.Popen(argv, stdin=lifeline, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:  # noqa: S603
            try:
                out, err = process.communicate()
            except BaseException:
                process.kill()
                raise
    finally:
        os.close(lifeline)
        os.close(held)
    if figure == "doomed" and process.returncode == -signal.SIGKILL:
        return []
    if process.returncode:
        message = f"measuring {figure!r} failed:\n{err.decode('utf-8', 'replace')}"
        raise RuntimeError(message)
    return msgspec.json.decode(out, type=list[Figure])


@contextmanager
def _scratch(folder: Path, url: str) -> Iterator[Path]:
    try:
        scratch = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=folder))
    except OSError as error:
        message = f"cannot measure in {folder}: {error.strerror}"
        raise UsageError(
            message, hint="give a database in a folder that can be written: --db sqlite:///folder/x.db"
        ) from None
    try:
        yield scratch
    finally:
        with suppress(UsageError):
            open_site(url, scratch).clear()
        shutil.rmtree(scratch, ignore_errors=True)
