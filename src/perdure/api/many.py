"""Starting many runs at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perdure.api.run import Run
    from perdure.model.duration import Duration

_AT_ONCE = 2000


class Start:
    """One start of `Engine.start_many`: takes what `Engine.start` takes."""

    __slots__ = ("args", "kwargs", "options", "workflow")

    def __init__(
        self, workflow: Any, /, *args: Any, id: str | None = None, queue: str | None = None, priority: int = 0,
        delay: Duration | None = None, version: str | None = None, channel: str | None = None,
        routing_key: str | None = None, timeout: Duration | None = None, tags: Mapping[str, str] | None = None,
        partition_key: str | None = None, deduplication_key: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        self.workflow: Any = workflow
        self.args: tuple[Any, ...] = args
        self.kwargs: dict[str, Any] = kwargs
        self.options: dict[str, Any] = {
            "id": id, "queue": queue, "priority": priority, "delay": delay, "version": version, "channel": channel,
            "routing_key": routing_key, "timeout": timeout, "tags": tags, "partition_key": partition_key,
            "deduplication_key": deduplication_key,
        }  # fmt: skip


class Starter(Protocol):
    """The engine, as far as it is needed here."""

    def check_start(self, start: Start) -> None:
        """Raise what a start would raise before it records anything."""
        ...

    async def start_call(
        self, workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **options: Any
    ) -> Run[Any]:
        """Start a run."""
        ...


async def start_many(engine: Starter, starts: Iterable[Start]) -> list[Run[Any]]:
    """Start runs, with few transactions for all of them; see `Engine.start_many`."""
    wanted = list(starts)
    for start in wanted:
        engine.check_start(start)
    runs: list[Run[Any]] = []
    for first in range(0, len(wanted), _AT_ONCE):
        part = wanted[first : first + _AT_ONCE]
        calls = (engine.start_call(one.workflow, one.args, one.kwargs, **one.options) for one in part)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            runs.append(answer)
    return runs
