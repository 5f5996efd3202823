"""Starting many runs at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perdure.api.starts import Started, Starts
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


async def start_many(starts: Starts, wanted: Iterable[Start]) -> list[Started]:
    """Start runs, with few transactions for all of them; see `Engine.start_many`."""
    calls = list(wanted)
    for call in calls:
        starts.check(call)
    started: list[Started] = []
    for first in range(0, len(calls), _AT_ONCE):
        part = calls[first : first + _AT_ONCE]
        under_way = (starts.start(one.workflow, one.args, one.kwargs, dict(one.options)) for one in part)
        for answer in await asyncio.gather(*under_way, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            started.append(answer)
    return started
