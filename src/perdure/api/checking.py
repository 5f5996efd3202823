"""Checks runs of a database against the code that is registered here."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perdure.api.reading import row_and_log
from perdure.codec.base import open_chain
from perdure.errors import InvalidValue, UsageError, VersionError
from perdure.replay.code import place_of
from perdure.replay.here import check_here
from perdure.replay.history import record
from perdure.replay.pool import Pool
from perdure.store.writer import StoreThread

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from perdure.codec.base import Chain
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.replay.history import History
    from perdure.replay.verdict import Verdict
    from perdure.runtime.connection import Connection
    from perdure.runtime.registry import WorkflowRegistry

MOST_PROCESSES = 16


class Checker:
    """What an engine checks with. Its processes are started by the first check and end with the engine.

    Args:
        workflows: the code.
        codec: how values are stored.
        options: options of the codec that encodes them.
    """

    def __init__(self, workflows: WorkflowRegistry, codec: Chain, options: Mapping[str, Any]) -> None:
        self._workflows = workflows
        self._codec = codec
        self._options = dict(options)
        self._thread = StoreThread("perdure-check")
        self._pools: dict[int, tuple[frozenset[str], Pool]] = {}

    async def check(self, connection: Connection, run_id: str, to: str | None, processes: int) -> Verdict:
        """Check one run; see `perdure.Engine.check`."""
        if type(processes) is not int or not 0 <= processes <= MOST_PROCESSES:
            message = f"processes must be a whole number from 0 to {MOST_PROCESSES}, not {processes!r}"
            raise InvalidValue(message)
        row, events = await row_and_log(connection, run_id)
        history = record(row, events, self._codec)
        workflow = self._code(history, to)
        loop: asyncio.AbstractEventLoop | None = connection.loop
        assert loop is not None  # noqa: S101 - it was read from just now
        if processes == 0:
            name = self._codec.codec.name
            codec = open_chain((name,), {name: self._options})
            verdict: Verdict = await self._thread.call(loop, check_here, history, workflow, codec)
        else:
            verdict = await self._thread.call(loop, self._pool(workflow, processes).check, history)
        return verdict

    def _code(self, history: History, to: str | None) -> WorkflowDefinition:
        workflow = self._workflows.get(history.workflow)
        if workflow is None:
            message = f"run {history.run_id!r} is of workflow {history.workflow!r}, whose code is not here"
            raise UsageError(message, hint="give the engine the workflow, or the module it is in")
        if to is not None and to != workflow.version:
            message = f"there is no code of {workflow.name} {to} here, only of {workflow.version}"
            raise VersionError(message, hint="leave out what to check against, or use the code of that version")
        return workflow

    def _pool(self, workflow: WorkflowDefinition, processes: int) -> Pool:
        known, pool = self._pools.get(processes, (frozenset[str](), None))
        if pool is not None and workflow.name in known:
            return pool
        if pool is not None:  # registered since it was made
            pool.close()
        place_of(workflow)
        found = [each for each in self._workflows.values() if _has_place(each)]
        code = {each.name: each for each in found}
        pool = Pool(code, codec=self._codec.codec.name, options=self._options, processes=processes)
        self._pools[processes] = frozenset(code), pool
        return pool

    def close(self) -> None:
        """End the processes, and with them any check under way."""
        for _, pool in self._pools.values():
            pool.close()
        self._pools.clear()
        self._thread.stop()
        self._thread = StoreThread("perdure-check")  # the engine may be opened again


def _has_place(workflow: WorkflowDefinition) -> bool:
    with suppress(UsageError):
        place_of(workflow)
        return True
    return False
