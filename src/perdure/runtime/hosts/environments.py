"""Starts hosts in environments of their own, where what is installed here is not what their versions need.

A host has one where a recorded distribution is missing, where dependencies are pinned and differ, where another Python
was recorded and is there, and after it could not be loaded in the worker's environment while that differs. All others
share the worker's. Where none can be made a host starts in the worker's all the same: it carries what can run there,
and says of the rest what is missing and why no environment could be made.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from perdure.errors import VersionLoadFailed
from perdure.runtime.hosts.building import Builder, host_environment, python_of, recipe
from perdure.runtime.hosts.job import TRY_LATER
from perdure.runtime.hosts.process import Spawner
from perdure.runtime.hosts.uv import UvFailed
from perdure.version.comparison import compare

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from perdure.runtime.hosts.building import Recipe
    from perdure.runtime.hosts.job import Job, Told
    from perdure.runtime.hosts.process import HostProcess
    from perdure.version.comparison import Comparison

logger: logging.Logger = logging.getLogger("perdure.hosts")


class Chosen(NamedTuple):
    """Where a host runs.

    Attributes:
        environment: folder of its environment; None for the worker's own.
        held: a file descriptor that keeps the environment from being removed.
        unbuilt: why it has none though it should.
    """

    environment: Path | None = None
    held: int = -1
    unbuilt: str = ""


SHARED: Final = Chosen()


class Environments:
    """See the module.

    Args:
        shared: starts hosts in the worker's environment.
        builder: makes others.
    """

    def __init__(self, shared: Callable[[Job], Awaitable[HostProcess]], builder: Builder) -> None:
        self._shared = shared
        self._builder = builder
        self._unfit: set[str] = set()
        """Releases that could not be loaded in the worker's environment."""
        self._building: set[asyncio.Task[Chosen]] = set()
        self._closed = False

    async def __call__(self, job: Job) -> HostProcess:
        """Start a host and give it its job, when its environment is there.

        Raises:
            OSError: no process can be started, or the worker stops.
        """
        comparison = await asyncio.to_thread(compare, job.distributions, job.python)  # reads many files
        task = asyncio.get_running_loop().create_task(self._choose(job, comparison))
        self._building.add(task)
        try:
            chosen = await task
        except asyncio.CancelledError:
            if self._closed:
                raise OSError("the worker stops, so no environment is made") from None
            raise
        finally:
            self._building.discard(task)
            task.cancel()
        given = msgspec.structs.replace(job, lock=None, unbuilt=chosen.unbuilt)
        if chosen.environment is not None:
            try:
                return await _spawner(chosen.environment, chosen.held)(given)
            finally:
                os.close(chosen.held)  # from now on the host has it
        host = await self._shared(given)
        if chosen.unbuilt:
            return host
        differs = bool(comparison.changed or comparison.python)
        return _Trial(host, lambda: self._unfit.add(job.release), differs=differs)

    async def close(self) -> None:
        """End what is being built."""
        self._closed = True
        for task in self._building:
            task.cancel()
        await asyncio.gather(*self._building, return_exceptions=True)

    async def _choose(self, job: Job, comparison: Comparison) -> Chosen:
        pinned = any(entry.pinned for entry in job.entries)
        needed = bool(comparison.fault(pinned=pinned)) or job.release in self._unfit
        if not needed and not comparison.python:
            return SHARED
        try:
            python = await self._builder.interpreter(job.python)
            if not python and not needed:
                return SHARED  # it is told as a notice
            return await self._built(recipe(job, python or await self._builder.interpreter("")))
        except (UvFailed, OSError) as error:
            logger.warning("no environment can be made for %s now: %s", job.version, error)
            return Chosen(unbuilt=str(error))

    async def _built(self, wanted: Recipe) -> Chosen:
        held = self._builder.hold(wanted)
        try:
            return Chosen(await self._builder.build(wanted), held)
        except BaseException:
            os.close(held)
            raise


def _spawner(environment: Path, held: int) -> Spawner:
    async def interpreter(_job: Job) -> str:
        return str(python_of(environment))

    return Spawner(interpreter, host_environment(environment), (held,))


class _Trial:
    """A host in the worker's environment, which may not be as the one that was recorded.

    Where that may be why a version cannot be loaded, nothing is told: the host ends, and the next has its own.

    Args:
        host: the host.
        unfit: called when it has failed so.
        differs: whether the environment differs from what was recorded.
    """

    def __init__(self, host: HostProcess, unfit: Callable[[], None], *, differs: bool) -> None:
        self._host = host
        self._unfit = unfit
        self._differs = differs
        self._failed = False
        self.pid: int = host.pid
        self.drain = host.drain
        self.terminate = host.terminate
        self.kill = host.kill
        self.close = host.close

    async def told(self) -> Told | None:
        """See `HostProcess`."""
        told = await self._host.told()
        cause = None if told is None else told.cause
        if cause is None or cause.code != VersionLoadFailed.code or not (self._differs or cause.unimported):
            return told
        logger.info("%s cannot be loaded with what is installed here: %s", cause.version, cause.detail)
        self._failed = True
        self._unfit()
        self._host.kill()
        return None

    async def ended(self) -> int:
        """See `HostProcess`."""
        code = await self._host.ended()
        return TRY_LATER if self._failed else code
