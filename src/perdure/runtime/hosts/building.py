"""Builds the environments that old versions need, once for each, with uv.

INV-1  An environment has its final name only when it is whole; from then on nothing of it is changed.
INV-2  What is in it: the versions that were recorded, and of the engine's own needs those that were not recorded, in
       this worker's versions. Nothing of the worker's environment can be seen from it but the engine.
INV-3  Where a lock file has hashes of a recorded version, no other file is installed.

INV-4  All together have a size at most; what was not used for longest goes, and nothing that a host runs from.

Several processes may build the same one at once; the first to be ready gives it the name, the others use that.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from perdure.runtime.hosts.cache import MOST_BYTES, hold, trim
from perdure.runtime.hosts.uv import UvFailed, run_online, run_program, run_uv
from perdure.store.base import backend_of
from perdure.version.config import canonical_json
from perdure.version.dependency import ENGINE
from perdure.version.installed import normal_name, version_of
from perdure.version.locks import Pin, pins, pins_of_requirements, requirements, uv_project
from perdure.version.unpack import make_private

if TYPE_CHECKING:
    from perdure.runtime.hosts.job import Job
    from perdure.version.dependency import Lock

SCHEME: Final = "env1"
HERE: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
NEEDS: Final = ("apsw", "click", "msgspec")
"""What the engine cannot be imported without."""
DRIVERS: Final = {"postgres": ("psycopg", "binary", "psycopg-binary"), "mysql": ("PyMySQL", "rsa", "cryptography")}
"""What it needs for a kind of database: a distribution, an extra of it, and what that extra brings."""
_OWN: Final = str(Path(sys.executable).resolve())
_PACKAGE: Final = Path(__file__).resolve().parents[2]
_BUILDING: Final = ".building-"


class Recipe(NamedTuple):
    """What makes an environment. Equal recipes are one environment.

    Attributes:
        python: the interpreter.
        distributions: the recorded versions, by name.
        lock: the recorded lock file.
        needs: requirements of the engine that were not recorded.
        backend: the kind of database that its engine opens.
        engine: the folder of this library's package.
    """

    python: str
    distributions: dict[str, str]
    lock: Lock | None
    needs: tuple[str, ...]
    backend: str
    engine: str = str(_PACKAGE)

    @property
    def key(self) -> str:
        """The name of the environment."""
        lock = None if self.lock is None else [self.lock.name, self.lock.sha256]
        parts = [SCHEME, self.python, self.distributions, lock, list(self.needs), self.backend, self.engine]
        return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


def recipe(job: Job, python: str) -> Recipe:
    """Return what makes the environment of a job, with this interpreter."""
    lock = job.lock if job.lock is not None and job.lock.text else None  # the text may be purged
    distributions = {name: there for name, there in job.distributions.items() if name != ENGINE}
    return Recipe(python, distributions, lock, _needs(job, distributions), backend_of(job.url))


def _needs(job: Job, recorded: dict[str, str]) -> tuple[str, ...]:
    """Return requirements of the engine, in the versions of this worker; what was recorded stays as it was."""
    names = [*NEEDS, *(["backports.zstd"] if "zstd" in job.settings.get("codecs", ()) else [])]
    found = {name: name for name in names if normal_name(name) not in recorded}
    driver, extra, brought = DRIVERS.get(backend_of(job.url), ("", "", ""))
    if driver:
        found[driver] = f"{driver}[{extra}]" if version_of(brought) else driver
    needs = [
        text if normal_name(name) in recorded else f"{text}=={there}"
        for name, text in found.items() if (there := version_of(name))
    ]  # fmt: skip
    return tuple(sorted(needs))


class Builder:
    """See the module.

    Args:
        folder: where environments are kept; made private to this user.
        most_bytes: how large they may be all together.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._pythons: dict[str, str] = {}

    async def interpreter(self, minor: str) -> str:
        """Return an interpreter of a minor version; empty if there is none here. Nothing is downloaded.

        Raises:
            UvFailed: uv is not here.
        """
        if minor in ("", HERE):
            return _OWN
        if minor not in self._pythons:
            make_private(self._folder)
            args = ("python", "find", minor, "--system", "--no-project", "--no-python-downloads", "--offline")
            with suppress(UvFailed):
                self._pythons[minor] = (await run_uv(self._folder, *args)).strip()
        return self._pythons.get(minor, "")

    def hold(self, wanted: Recipe) -> int:
        """Keep an environment from being removed; before `build`, by whoever is going to use it.

        Returns:
            A file descriptor, see `perdure.runtime.hosts.cache.hold`.

        Raises:
            OSError: the folder belongs to somebody else.
        """
        make_private(self._folder)
        return hold(self._folder, wanted.key)

    async def build(self, wanted: Recipe) -> Path:
        """Return the folder of an environment, made now unless it is there.

        Raises:
            UvFailed: it cannot be made; says why in one line.
            OSError: the disk is full, or the folder belongs to somebody else.
        """
        await asyncio.to_thread(make_private, self._folder)
        final = self._folder / wanted.key
        if is_usable(final):
            return final
        scratch = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=self._folder))  # mode 0700
        try:
            await _make(scratch, wanted)
            await asyncio.to_thread(self._settle, scratch / "env", final)
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
            await asyncio.to_thread(trim, self._folder, self._most_bytes)
        return final

    def _settle(self, made: Path, final: Path) -> None:
        """Give a finished environment its name. Where another process was faster, its environment stays."""
        for _ in range(10):
            try:
                made.rename(final)
                return
            except OSError:
                if not final.exists():
                    raise
            if is_usable(final):
                return
            # Its interpreter is gone: out of the way, under a name that is removed with what is left of this build.
            with suppress(FileNotFoundError):
                final.rename(made.with_name("unusable"))
        raise OSError(f"{final} cannot be replaced")


def python_of(environment: Path) -> Path:
    """Return the interpreter of an environment."""
    return environment / "bin" / "python"


def is_usable(environment: Path) -> bool:
    """Whether an environment is there, this user's, and its interpreter and engine still are."""
    try:
        if environment.is_symlink() or environment.stat().st_uid != os.geteuid():
            return False
        engines = environment.glob(f"lib/python*/site-packages/{ENGINE}/__init__.py")
        return os.access(python_of(environment), os.X_OK) and any(engine.is_file() for engine in engines)
    except OSError:
        return False


async def _make(scratch: Path, wanted: Recipe) -> None:
    env = scratch / "env"
    locked = [] if wanted.lock is None else await _locked(scratch, wanted.lock, wanted.python)
    lines = requirements(wanted.distributions, locked)
    (scratch / "recorded.txt").write_text("\n".join(lines) + "\n", "utf-8")
    (scratch / "needs.txt").write_text("\n".join(wanted.needs) + "\n", "utf-8")
    await run_uv(
        scratch, "venv", "--python", wanted.python, "--no-project", "--no-python-downloads", "--relocatable", env
    )
    install = ("pip", "install", "--python", python_of(env), "--strict", "-r")
    if lines:
        await run_online(scratch, *install, scratch / "recorded.txt", "--no-deps")
    if wanted.needs:
        held = [f"{name}=={there}\n" for name, there in wanted.distributions.items()]
        (scratch / "held.txt").write_text("".join(held), "utf-8")
        await run_online(scratch, *install, scratch / "needs.txt", "-c", scratch / "held.txt")
    (site,) = env.glob("lib/python*/site-packages")
    (site / ENGINE).symlink_to(wanted.engine, target_is_directory=True)
    await _prove(scratch, env, wanted.backend)


async def _locked(scratch: Path, lock: Lock, python: str) -> list[Pin]:
    """Return what a lock file holds.

    Raises:
        UvFailed: it is not what was recorded, or cannot be read.
    """
    try:
        held = pins(lock)
        if lock.name != "uv.lock" or not (text := uv_project(lock)):
            return held
        project = scratch / "project"
        project.mkdir()
        (project / "uv.lock").write_text(lock.text, "utf-8")
        (project / "pyproject.toml").write_text(text, "utf-8")
        args = ("--frozen", "--offline", "--no-dev", "--no-emit-local", "--no-header", "--no-annotate")
        return [*pins_of_requirements(await run_uv(project, "export", *args, "--python", python)), *held]
    except ValueError as error:
        raise UvFailed(str(error)) from error


async def _prove(scratch: Path, env: Path, backend: str) -> None:
    """See that the engine can be imported, which is this worker's and not the one that was recorded."""
    try:
        code = f"import perdure.hosting.process, perdure.store.{backend}"
        await run_program(scratch, host_environment(env), python_of(env), "-P", "-c", code)
    except UvFailed as error:
        raise UvFailed(f"this release of perdure does not work with what was recorded: {error}") from error


def host_environment(environment: Path) -> dict[str, str]:
    """Return the variables of a process that runs in an environment, as if somebody had activated it."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    path = [str(environment / "bin"), *filter(None, [kept.get("PATH")])]
    return {**kept, "VIRTUAL_ENV": str(environment), "PATH": os.pathsep.join(path)}
