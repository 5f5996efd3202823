"""An open store with what every user of it shares: the writer, a thread for reads, ids, and who waits for what."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from perdure.runtime.ids import CommitIds
from perdure.runtime.waiters import Waiters
from perdure.store.writer import StoreThread, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.codec.base import Codec
    from perdure.model.write import Outcome, Write
    from perdure.store.base import Store


class Connection:
    """Open from `open` to `close`, on one event loop."""

    def __init__(self, store: Store, codec: Codec) -> None:
        self.store = store
        self.codec = codec
        self.writer = Writer(store)
        self.reader = StoreThread("perdure-reader")
        self.waiters = Waiters(store, self.reader)
        self.commit_ids = CommitIds()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        """Connect. Raises what `Store.open` raises."""
        self.loop = asyncio.get_running_loop()
        try:
            await self.reader.call(self.loop, self.store.open)
        except BaseException:
            self.reader.stop()
            self.store.close()
            raise
        self.writer.start(self.loop)

    async def close(self) -> None:
        """Write what is queued, then let go of everything."""
        await self.waiters.close()
        await self.writer.close()
        self.reader.stop()
        self.store.close()

    async def read(self, function: Callable[..., Any], *args: Any) -> Any:
        """Make a blocking read of the store on the reading thread."""
        assert self.loop is not None  # noqa: S101 - opened before anything reads
        return await self.reader.call(self.loop, function, *args)

    async def write(self, write: Write) -> Outcome:
        """Have one write committed and return how it ended."""
        if self.writer.is_full:
            await self.writer.room()
        answer = Answer(asyncio.get_running_loop())
        self.writer.submit(write, answer)
        # The write goes on when its caller gives up: it may be committed already.
        return await asyncio.shield(answer.future)


class Answer:
    """Waits for one write."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Outcome] = loop.create_future()

    def settled(self, write: Any, outcome: Outcome) -> None:  # noqa: ARG002 - there is only one
        """Take the writer's answer."""
        if not self.future.done():
            self.future.set_result(outcome)
