"""Committing a batch: blindly at first, and with the eyes open if something is not as it was believed to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from perdure.model.write import COMMITTED
from perdure.store.server.book import ServerBook
from perdure.store.server.dialect import Dialect, Fault, L, LinkLost
from perdure.store.settle import Settlement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.model.write import Outcome, Write
    from perdure.store.tails import Tails


class Promise:
    """What will be answered if the transaction turns out to have been committed."""

    def __init__(self, writes: Sequence[Write] = (), outcomes: Sequence[Outcome] = ()) -> None:
        self.writes = writes
        self.outcomes = outcomes


class Committing(Generic[L]):
    """One batch, tried until it is known what becomes of it.

    Args:
        dialect: of the server.
        batch: the writes.
        tails: what is known to be in logs.
        failed: how a first try has ended that was made from elsewhere.

    Attributes:
        hurry: whether somebody else is known to be in the way of a write: then nobody is waited for, and the others
            are committed without it.
    """

    def __init__(
        self, dialect: Dialect[L], batch: Sequence[Write], tails: Tails, failed: Exception | None = None
    ) -> None:
        self._dialect = dialect
        self._batch = batch
        self._tails = tails
        self._failed = failed
        self.hurry: bool = False

    def __call__(self, link: L, promise: Promise) -> list[Outcome]:
        """Commit what can be committed and answer each write.

        Raises:
            LinkLost: what became of the commit is not known; ``promise`` says what to look for.
            Exception: an error of the driver; nothing is committed.
        """
        batch = promise.writes = self._batch
        outcomes: list[Outcome] = [COMMITTED] * len(batch)
        promise.outcomes = outcomes
        if not self.hurry and self._fits(link):
            return outcomes
        self._tails.clear()
        link.rollback()
        link.begin()
        try:
            promise.outcomes = settled = Settlement(ServerBook(self._dialect, link, hurry=self.hurry), batch).settle()
        except Exception as error:
            self.hurry = self._dialect.fault(error) is Fault.BLOCKED
            raise
        self._dialect.seal(link)
        link.commit()
        return settled

    def _fits(self, link: L) -> bool:
        """Commit all of it, or say that it has to be looked at."""
        try:
            self._apply(link)
        except LinkLost:
            raise
        except Exception as error:
            found = self._dialect.fault(error)
            if found not in (Fault.WRITE, Fault.BLOCKED):
                raise
            self.hurry = found is Fault.BLOCKED
            return False
        return True

    def _apply(self, link: L) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        self._dialect.apply(link, self._batch, self._tails)
