"""An open store with what every user of it shares: the writer, a thread for reads, ids, and who waits for what."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from perdure.errors import StoreError, StoreUnavailable
from perdure.model.cache import Cache
from perdure.model.write import Committed
from perdure.runtime.ids import CommitIds
from perdure.runtime.waiters import Waiters
from perdure.store.thread import StoreThread
from perdure.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.codec.base import Codec
    from perdure.model.write import Create, Outcome, Write
    from perdure.store.base import Store

logger: logging.Logger = logging.getLogger("perdure.store")
MOST_DEFINITIONS = 2_000


class Connection:
    """Open from `open` to `close`, on one event loop."""

    def __init__(self, store: Store, codec: Codec) -> None:
        self.store = store
        self.codec = codec
        self.writer: Writer = Writer(store)
        self.reader: StoreThread = StoreThread("perdure-reader")
        self.waiters: Waiters = Waiters(store, self.reader)
        self.commit_ids: CommitIds = CommitIds()
        self.definitions: Cache = Cache(MOST_DEFINITIONS)
        """What the database has said of versions: by name of a workflow what its starts are bound by; by kind and
        number the versions and releases that hosts are started from."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.failure: StoreError | None = None
        """Set when the store has failed for good: nothing is written any more, so nobody must wait for it."""
        self._awaited: set[asyncio.Future[Any]] = set()

    async def open(self) -> None:
        """Connect. Raises what `Store.open` raises."""
        self.loop = asyncio.get_running_loop()
        try:
            await self.reader.call(self.loop, self.store.open)
        except BaseException:
            self.reader.stop()
            self.store.close()
            raise
        self.writer.on_crash = self._crashed
        self.writer.start(self.loop)

    async def close(self, patience_s: float) -> None:
        """Write what is queued, then let go of everything.

        Args:
            patience_s: what is not written is given up when nothing could be written for so long.
        """
        await self.waiters.close()
        if not await self.writer.close(patience_s):
            text = "the engine was closed while the database was away, or somebody else's transaction in the way"
            logger.warning("%s: what was not confirmed by then may not be recorded", text)
            self._fail(
                StoreUnavailable(
                    text, unknown=True, hint="what was confirmed is safe; a start with an id can be repeated"
                )
            )
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
        outcome: Outcome = await self.answered(answer.future)
        return outcome

    async def answered(self, future: asyncio.Future[Any]) -> Any:
        """Wait for the answer to a write. The write goes on when its caller gives up: it may be committed already.

        Raises:
            StoreError: the store has failed for good, so there will be no answer.
        """
        self.check()
        self._awaited.add(future)
        try:
            return await future
        finally:
            self._awaited.discard(future)

    def check(self) -> None:
        """Raise the `StoreError` that says so if the store has failed for good."""
        if self.failure is not None:
            raise self.failure

    def _crashed(self, error: BaseException) -> None:
        logger.critical("the store failed and nothing is written any more", exc_info=error)
        text = f"the store failed and nothing is written any more: {type(error).__name__}: {error}"
        self._fail(StoreError(text, hint="what is recorded is safe; start the process again"))

    def _fail(self, failure: StoreError) -> None:
        """Tell all who wait that there will be no answer."""
        self.failure = failure
        for future in list(self._awaited):
            if not future.done():
                future.set_exception(failure)
                future.exception()  # its caller may have given up
        self.waiters.fail(failure)


class Answer:
    """Waits for one write."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Any] = loop.create_future()

    def settled(self, write: Any, outcome: Outcome) -> None:  # noqa: ARG002 - there is only one
        """Take the writer's answer."""
        if not self.future.done():
            self.future.set_result(outcome)


class Ending(Answer):
    """Waits until the run that a create records is at rest; if it records none, for the answer to the create.

    Whoever starts a run to wait for it is woken once, not twice.

    Args:
        loop: the engine's.
        waiters: answer the future once the run is recorded.
        on_recorded: called when it is.

    Attributes:
        is_recorded: whether it is.
    """

    __slots__ = ("_on_recorded", "_waiters", "is_recorded")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, waiters: Waiters, on_recorded: Callable[[Create], None]
    ) -> None:
        super().__init__(loop)
        self._waiters = waiters
        self._on_recorded = on_recorded
        self.is_recorded: bool = False

    def settled(self, write: Create, outcome: Outcome) -> None:
        """Take the writer's answer."""
        if type(outcome) is not Committed:
            super().settled(write, outcome)
            return
        self.is_recorded = True
        self._on_recorded(write)
        self._waiters.add(write.row.id, self.future, is_new=True)

    def give_up(self, run_id: str) -> None:
        """Wait no more."""
        self._waiters.discard(run_id, self.future)
