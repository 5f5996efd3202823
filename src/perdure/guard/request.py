"""The request id: seen before, the stored answer is returned; and together with a state check, the double guard.

The row is inserted before anything else, so the unique key is what decides between two that come at once: the second
waits for the transaction of the first. It, and all that the guarded block does, is behind one savepoint: when the block
raises, nothing of it stays, even if the caller goes on and commits.
"""

from __future__ import annotations

import contextvars
import re
from collections.abc import Awaitable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar, cast, overload

from perdure.codec.json import JsonCodec
from perdure.codec.signature import digest
from perdure.errors import GuardConflict, GuardError, InvalidValue, PerdureError, UsageError
from perdure.guard.faults import busy, meaning
from perdure.guard.link import Link, link, run, run_async
from perdure.guard.row import Change, demanding
from perdure.guard.statement import MYSQL, SQLITE, Query, Savepoint, Steps, shared_lock
from perdure.guard.table import MOST_BYTES, NOW
from perdure.kernel.scope import CURRENT

T = TypeVar("T")
_CODEC: Final = JsonCodec()
_TEXT = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]+")
_KEY_USED: contextvars.ContextVar[Any] = contextvars.ContextVar("perdure_key_used", default=None)
"""The attempt of a step that has guarded something with the step's key."""
_COMMIT_LATER: Final = "commit after the block, not in it; on MySQL, statements such as `create table` commit"
_TRIES: Final = 10
"""How often a row that vanishes while it is looked at is looked for."""


class Stored(NamedTuple):
    """What was stored for a request that was seen before."""

    body_digest: int | None
    answer: bytes | None


def opening(
    dialect: str, request_id: str, body_digest: int | None, change: Change | None = None
) -> Steps[Stored | None]:
    """Open the savepoint and insert the request's row: None if it is new, else what is stored, and no savepoint.

    Raises:
        GuardBusy: another transaction holds what is needed, and the wait was too long.
        GuardError: there is no table of requests.
        StateMismatch: the request is new, but the change does not apply.
    """
    yield Savepoint.OPEN
    try:
        stored = yield from _insert_or_read(dialect, request_id, body_digest)
        if stored is None and change is not None:
            yield from demanding(dialect, change)
    except Exception as error:
        missing = yield from _undo(dialect, error)
        told = _what(error, request_id, dialect, missing=missing)
        if told is None:
            raise
        raise told from error
    if stored is not None:
        yield Savepoint.KEEP
    return stored


def _insert_or_read(dialect: str, request_id: str, body_digest: int | None) -> Steps[Stored | None]:
    key, mark = _key(dialect, request_id)
    rule = "" if dialect == MYSQL else " on conflict (request_id) do nothing"
    insert = f"insert into perdure_guard (request_id, body_digest, created_at) values ({mark}, ?, {NOW[dialect]}){rule}"
    select = f"select body_digest, answer from perdure_guard where request_id = {mark}{shared_lock(dialect)}"
    for _ in range(_TRIES):
        try:
            if (yield Query(insert, (key, body_digest))).affected:
                return None
        except Exception as error:
            # MySQL undoes this statement alone. What counts the rows of ON DUPLICATE KEY UPDATE depends on the client.
            if dialect != MYSQL or meaning(error, dialect) != "duplicate":
                raise
        rows = (yield Query(select, (key,))).rows
        if rows:
            found, answer = rows[0]
            return Stored(found, answer.encode() if isinstance(answer, str) else answer)
    raise GuardError(f"request {request_id!r} is there and is not: it is deleted over and over")


def _key(dialect: str, request_id: str) -> tuple[str, str]:
    """Return an id as a value, and its place in a statement. On MySQL it is bytes, whatever the connection encodes."""
    return (request_id.encode().hex(), "unhex(?)") if dialect == MYSQL else (request_id, "?")


def closing(dialect: str, request_id: str, answer: bytes) -> Steps[None]:
    """Store the answer and let go of the savepoint; both or nothing.

    Raises:
        GuardError: the transaction in which the request was begun is no longer open.
    """
    key, mark = _key(dialect, request_id)
    text = f"update perdure_guard set answer = ? where request_id = {mark} and answer is null"
    try:
        stored = (yield Query(text, (answer.decode(), key))).affected == 1
        if stored:
            yield Savepoint.KEEP
    except Exception as error:
        yield from abandoning()
        told = busy(error, f"request {request_id!r}", dialect)
        raise told or GuardError(f"{_ended(request_id)}: {error}", hint=_COMMIT_LATER) from error
    if not stored:
        yield from abandoning()
        raise GuardError(_ended(request_id), hint=_COMMIT_LATER)


def _ended(request_id: str) -> str:
    return f"the answer of request {request_id!r} cannot be stored: its transaction is not the one it was begun in"


def abandoning() -> Steps[None]:
    """Undo what was done since the request was begun. Where that cannot be done, the transaction is lost anyway."""
    with suppress(Exception):
        yield Savepoint.UNDO


def _undo(dialect: str, error: Exception) -> Steps[bool]:
    """Go back to the savepoint; say whether the table is missing."""
    yield from abandoning()
    if dialect == SQLITE:  # its errors have one number for all mistakes in a statement
        with suppress(Exception):
            return not (yield Query("select 1 from sqlite_schema where name = 'perdure_guard'")).rows
    return meaning(error, dialect) == "missing"


def _what(error: Exception, request_id: str, dialect: str, *, missing: bool) -> PerdureError | None:
    if missing:
        hint = "call perdure.guard.create_table(connection) once, or execute perdure.guard.schema(...)"
        return GuardError("there is no table perdure_guard in this database", hint=hint)
    return busy(error, f"request {request_id!r}", dialect)


class Once(Generic[T]):
    """A request in a ``with`` or ``async with`` block.

    Attributes:
        request_id: id of the request.
        first: whether it is new; then the block does the work and sets `answer`.
        answer: what is stored for the request when the block ends; for one that was seen before, what was stored.
    """

    def __init__(self, connection: Any, request_id: str | None, body: Any, change: Change | None, returns: Any) -> None:
        self._connection = connection
        self._scope: Any = None
        self._change = change
        self._returns = returns
        self._digest = None if body is None else digest(_CODEC.encode(body), named=True)
        self._link: Link | None = None
        self.request_id: str = self._step_key() if request_id is None else _checked(request_id)
        self.first: bool = False
        self.answer: T = cast("T", None)

    def _step_key(self) -> str:
        scope = CURRENT.get()
        if scope is None or scope.is_body:
            where = "in the body of a workflow" if scope is not None else "outside a step"
            message = f"a guard without a request id was used {where}"
            raise UsageError(message, hint="in a step the id defaults to the step's key; elsewhere pass one")
        if _KEY_USED.get() is scope:
            message = (
                f"step {scope.name!r} guards two things with one key, and the second would get the first one's answer"
            )
            raise UsageError(message, hint="pass ids: f'{perdure.step_info().key}/coupon'")
        self._scope = scope
        return _checked(scope.key)

    def _opening(self, over: Link) -> Steps[Stored | None]:
        if self._link is not None:
            message = "a guard was entered twice"
            raise UsageError(message, hint="make a new one for each block")
        self._link = over
        return opening(over.dialect, self.request_id, self._digest, self._change)

    def _opened(self, stored: Stored | None) -> None:
        self.first = stored is None
        if stored is None:
            return
        if stored.body_digest != self._digest and None not in (stored.body_digest, self._digest):
            raise GuardConflict(f"request {self.request_id!r} was made before with another body")
        if stored.answer is None:
            message = f"request {self.request_id!r} was begun and committed without an answer"
            raise GuardError(
                message, hint="its block was left by a commit inside it; look what was done, and delete its row"
            )
        self.answer = _CODEC.decode(stored.answer, self._returns)

    def _encoded(self) -> bytes:
        data = _CODEC.encode(self.answer, self._returns)
        self.answer = _CODEC.decode(data, self._returns)  # what a repeat will see
        return data

    def _done(self) -> None:
        if self._scope is not None:
            _KEY_USED.set(self._scope)

    def __enter__(self) -> Self:
        over = link(self._connection, is_async=False)
        over.check()
        self._opened(run(over, self._opening(over)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        over = cast("Link", self._link)
        if self.first and error is not None:
            run(over, abandoning())
        elif self.first:
            try:
                data = self._encoded()
            except Exception:
                run(over, abandoning())
                raise
            run(over, closing(over.dialect, self.request_id, data))
        if error is None:
            self._done()

    async def __aenter__(self) -> Self:
        over = link(self._connection, is_async=True)
        await cast("Awaitable[None]", over.check())
        self._opened(await run_async(over, self._opening(over)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        over = cast("Link", self._link)
        if self.first and error is not None:
            await run_async(over, abandoning())
        elif self.first:
            try:
                data = self._encoded()
            except Exception:
                await run_async(over, abandoning())
                raise
            await run_async(over, closing(over.dialect, self.request_id, data))
        if error is None:
            self._done()


def _checked(request_id: object) -> str:
    if not isinstance(request_id, str) or not _TEXT.fullmatch(request_id):
        message = (
            f"a request id must be a text of at least one character, without control characters, not {request_id!r}"
        )
        raise InvalidValue(message)
    if len(request_id.encode()) > MOST_BYTES:
        message = f"a request id may take {MOST_BYTES} bytes, not {len(request_id.encode())}"
        raise InvalidValue(message)
    return request_id


@overload
def once(
    connection: Any, request_id: str | None = None, *, body: Any = None, change: Change | None = None, returns: type[T]
) -> Once[T]: ...
@overload
def once(
    connection: Any,
    request_id: str | None = None,
    *,
    body: Any = None,
    change: Change | None = None,
    returns: None = None,
) -> Once[Any]: ...
def once(
    connection: Any, request_id: str | None = None, *, body: Any = None, change: Change | None = None,
    returns: Any = None,
) -> Once[Any]:  # fmt: skip
    """Guard a block so that it is done once per request: seen before, the stored answer is there instead.

    The block is part of the caller's own transaction: the effect, the request and its answer are committed together, or
    not at all. Two at once: the second waits until the first has committed, and then finds its answer.

    Args:
        connection: the application's connection, with its transaction.
        request_id: id that whoever sends the request gives to each of its repeats. In a step: the step's key.
        body: what the request asks for. The same id with another body is refused; None is not compared.
        change: a state check as well, the double guard: a new request is done only if the change applies.
        returns: class of the answer, where it cannot be found by its name.

    Raises:
        GuardConflict: the id was used before with another body.
        GuardBusy: another transaction is at it, and the wait was too long. Roll back and try again.
        StateMismatch: the request is new, and its change does not apply.
        GuardError: there is no table of requests, or the transaction ended inside the block.
        UsageError: the connection cannot be used, or no transaction is open.
        CodecError: the body or the answer cannot be stored.
    """
    return Once(connection, request_id, body, change, Any if returns is None else returns)
