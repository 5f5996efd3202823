"""What can be read about runs, decoded for people."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.api.starting import check_tags
from perdure.codec.exception import read_failure
from perdure.errors import CodecError, InvalidValue, RunNotFound, StoreCorrupt, StoreUnavailable, UsageError
from perdure.kernel.definition import check_name
from perdure.model.event import Event as Row
from perdure.model.filter import RunFilter
from perdure.model.run import RunRow, Tombstone
from perdure.model.status import GOING_ON, EventType, Status
from perdure.replay.history import record
from perdure.runtime.history import effective
from perdure.version.resolution import HASH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from perdure.codec.base import Codec
    from perdure.replay.history import History
    from perdure.runtime.connection import Connection
    from perdure.store.base import Store

logger: logging.Logger = logging.getLogger("perdure.run")
_PAUSE_S = 0.2
"""Between two looks while the database is away."""
_FAILURES = frozenset({EventType.RUN_FAILED, EventType.STEP_FAILED, EventType.STEP_ATTEMPT_FAILED})

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PURGED = "only its id, its state and who purged it are left: `perdure show` tells them"


def moment(microseconds: int) -> datetime:
    """Return a stored time as an aware UTC datetime."""
    return EPOCH + timedelta(microseconds=microseconds)


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run as listings show it.

    Attributes:
        id: id of the run.
        workflow: name of its workflow.
        version: label of the version it is bound to.
        version_id: number of that version in the database; 0 while it is bound to none.
        status: where it stands.
        queue: queue it was started on.
        priority: higher is sooner.
        tags: tags given at the start.
        detail: one line: why it is parked, how it failed.
        owner: worker that owns it, if one does.
        epoch: how often it was claimed.
        wake_at: when a worker may next take it up, if it waits for a time.
        created_at: when it was recorded; of a purged run, when it was purged.
        updated_at: when its state last changed.
        purged: its history is gone; only the id is still taken.
    """

    id: str
    workflow: str
    version: str
    status: Status
    queue: str = "default"
    priority: int = 0
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    detail: str | None = None
    owner: str | None = None
    epoch: int = 0
    wake_at: datetime | None = None
    created_at: datetime
    updated_at: datetime
    purged: bool = False
    version_id: int = 0


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a run's log.

    Attributes:
        run_id: id of the run.
        seq: place in the log, from 1.
        type: what happened, such as ``step_completed``.
        at: when, by the database's clock (UTC).
        epoch: ownership epoch.
        worker: worker that recorded it; None for events from outside.
        version: version of the workflow it was recorded under.
        op: id of the operation, such as ``4.1``.
        kind: kind of the operation: step, timer, checkpoint, value, patch.
        name: name of the operation.
        attempt: number of the attempt, 0 where there are none.
        state: ``before>after`` where the run's state changed.
        input: arguments by name, if recorded.
        result: result or value, if the event has one.
        error: error text, if the event tells of one.
        detail: facts of the engine: actor, reason, wake_at, ...
    """

    run_id: str
    seq: int
    type: str
    at: datetime
    epoch: int
    worker: str | None
    version: str
    op: str | None
    kind: str | None
    name: str | None
    attempt: int
    state: str | None
    input: Any
    result: Any
    error: str | None
    detail: dict[str, Any]

    @property
    def id(self) -> str:
        """Unique id of the event: run id and place in the log."""
        return f"{self.run_id}:{self.seq}"


def to_info(row: RunRow | Tombstone) -> RunInfo:
    """Return a stored row as people see it."""
    if isinstance(row, Tombstone):
        at = moment(row.purged_at)
        return RunInfo(
            id=row.run_id, workflow=row.workflow, version="", status=Status(row.status), detail=_purged(row),
            created_at=at, updated_at=at, purged=True,
        )  # fmt: skip
    return RunInfo(
        id=row.id, workflow=row.workflow, version=row.workflow_version, status=Status(row.status), queue=row.queue,
        priority=row.priority, tags=msgspec.json.decode(row.tags) if row.tags else {}, detail=row.detail,
        owner=row.owner, epoch=row.epoch, wake_at=None if row.wake_at is None else moment(row.wake_at),
        created_at=moment(row.created_at), updated_at=moment(row.updated_at), version_id=row.version_id,
    )  # fmt: skip


def _purged(row: Tombstone) -> str:
    return f"purged by {row.actor or 'somebody'}" + (f": {row.reason}" if row.reason else "")


async def find(connection: Connection, run_id: str) -> RunRow | Tombstone:
    """Return a run or what a purge left of it. Raises `RunNotFound`."""
    row: RunRow | Tombstone | None = await connection.read(connection.store.get, possible(run_id))
    if row is None:
        raise RunNotFound(run_id)
    return row


def possible(run_id: str) -> str:
    """Return ``run_id`` if a run can have it: a database refuses to be asked for some texts. Raises `RunNotFound`."""
    try:
        return check_name(run_id, "a run id")
    except UsageError:
        raise RunNotFound(run_id) from None


async def row_and_log(connection: Connection, run_id: str) -> tuple[RunRow, list[Row]]:
    """Return a run and its log, which is never empty: it may be purged between the two looks.

    Raises:
        RunNotFound: no such run, or its history was purged.
    """
    row = await find(connection, run_id)
    events = [] if isinstance(row, Tombstone) else await connection.read(connection.store.load, run_id)
    if isinstance(row, Tombstone) or not events:
        raise RunNotFound(run_id, f"the history of run {run_id!r} was purged", hint=_PURGED)
    return row, events


End = tuple[RunRow, Row]
"""A run that is at rest, and the event that brought it there."""


async def end_of(connection: Connection, run_id: str) -> End | None:
    """Return a run that is at rest and the event that brought it there; None while it goes on.

    Raises:
        RunNotFound: no such run, or its history was purged.
        StoreCorrupt: the log does not tell of the state that the run is in.
    """
    seen: RunRow | None = None
    while True:
        row = await find(connection, run_id)
        if isinstance(row, Tombstone):
            raise RunNotFound(run_id, f"the history of run {run_id!r} was purged; it was {row.status}", hint=_PURGED)
        if row.status in GOING_ON:
            return None
        tail: list[Row] = await connection.read(connection.store.load, run_id, -1)
        # Between the two looks the run may have been retried, or purged.
        if tail and (tail[0].state or "").endswith(f">{row.status}"):
            return row, tail[0]
        if row == seen:
            message = f"the log does not say why the run is {row.status}"
            raise StoreCorrupt(message, run_id=run_id)
        seen = row


async def when_ended(connection: Connection, run_id: str) -> End:
    """Wait until a run is at rest. While the database is away nobody knows, and whoever waits goes on waiting.

    Args:
        connection: an open one.
        run_id: id of the run.

    Raises:
        RunNotFound, StoreCorrupt: see `end_of`.
        StoreError: the store has failed for good, or was closed.
    """
    possible(run_id)
    while True:
        connection.check()
        end: End | None = await connection.waiters.wait(run_id)
        try:
            end = end or await end_of(connection, run_id)
        except StoreUnavailable as error:
            if connection.reader.stopped:
                raise
            logger.debug("cannot look for the end of run %s now: %s", run_id, error)
            await asyncio.sleep(_PAUSE_S)
        if end is not None:
            return end


async def run_info(connection: Connection, run_id: str) -> RunInfo:
    """Return what a listing shows of a run. Raises `RunNotFound`."""
    return to_info(await find(connection, run_id))


async def history(connection: Connection, run_id: str) -> list[Event]:
    """Return a run's log, decoded. Raises `RunNotFound`."""
    row, rows = await row_and_log(connection, run_id)
    return list(decode_log(rows, row.workflow_version, connection.codec))


async def recording(connection: Connection, run_id: str) -> History:
    """Return a run by itself. Raises `RunNotFound`."""
    row, rows = await row_and_log(connection, run_id)
    return record(row, rows, connection.codec)


async def value(connection: Connection, run_id: str, name: str, default: Any) -> Any:
    """Return the last published value of a name. Raises `RunNotFound`."""
    _, rows = await row_and_log(connection, run_id)
    for row in reversed(effective(rows)):
        if row.type == EventType.VALUE_PUBLISHED and row.name == name:
            return connection.codec.decode(row.payload or b"null")
    return default


def decode_log(rows: Iterable[Row], version: str, codec: Codec) -> Iterable[Event]:
    """Decode stored events; what cannot be decoded is said, never raised."""
    worker: str | None = None
    for row in rows:
        detail = msgspec.json.decode(row.detail) if row.detail else {}
        outside = "actor" in detail or row.type == EventType.RUN_STARTED
        if row.type in (EventType.RUN_CLAIMED, EventType.RUN_PARKED) and "worker" in detail:
            worker = detail["worker"]
            version = detail.get("version", version)
        failed = row.type in _FAILURES
        yield Event(
            run_id=row.run_id, seq=row.seq, type=row.type, at=moment(row.at), epoch=row.epoch,
            worker=None if outside else worker, version=version, op=row.op, kind=row.kind, name=row.name,
            attempt=row.attempt, state=row.state, input=_show(row.input, codec),
            result=None if failed else _show(row.payload, codec),
            error=_show_error(row.payload, codec) if failed else None, detail=detail,
        )  # fmt: skip


def _show(data: bytes | None, codec: Codec) -> Any:
    if data is None:
        return None
    try:
        return codec.decode(data)
    except CodecError as error:
        return _raw(data, f"<{error}>")


def _raw(data: bytes, otherwise: str) -> Any:
    """Return stored JSON as it stands: its classes are those of the user's code, which need not be here."""
    try:
        return _bare(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeError):
        return otherwise


def _bare(node: Any) -> Any:
    """Return stored JSON without the marks that say which class a value is of."""
    if isinstance(node, list):
        return [_bare(item) for item in node]
    if not isinstance(node, dict):
        return node
    if "$" in node and "v" in node:
        return _bare(node["v"])
    return {name: _bare(item) for name, item in node.items()}


def _show_error(data: bytes | None, codec: Codec) -> str | None:
    if data is None:
        return None
    try:
        failure = read_failure(data, codec)
    except CodecError as error:
        return f"<{error}>"
    return f"{failure.type_name}: {failure.message}"


PAGE = 200


def ids_of(store: Store, version: str) -> tuple[int, ...]:
    """Return the versions of all workflows whose hash begins so."""
    shelves = map(store.catalog.shelf, store.catalog.workflows())
    return tuple(one.id for shelf in shelves for one in shelf.known.versions.values() if one.sha256.startswith(version))


async def build_filter(
    connection: Connection, *, status: str | Iterable[str] | None, workflow: Any, version: str | None,
    queue: str | None, tag: Mapping[str, str] | None, since: datetime | None, until: datetime | None,
    cursor: str | None,
) -> RunFilter:  # fmt: skip
    """Return the stored form of a listing's conditions.

    Raises:
        UsageError: an unknown state, a time without a zone, a cursor that is no run, or a value of a wrong type.
    """
    try:
        names = [status] if isinstance(status, str) else list(status or ())
        statuses = tuple(Status(name).value for name in names)
    except (ValueError, TypeError):
        known = ", ".join(Status)
        message = f"there is no status {status!r}; there are {known}"
        raise UsageError(message) from None
    before = None if cursor is None else await _place_of(connection, cursor)
    workflow = getattr(workflow, "name", workflow)
    for what, name in (("workflow", workflow), ("version", version), ("queue", queue)):
        if name is not None:
            check_name(name, f"the {what} of a listing")
    ids: tuple[int, ...] = ()
    if version is not None and HASH.fullmatch(version):
        ids = await connection.read(ids_of, connection.store, version)
        version = None if ids else version
    return RunFilter(
        statuses=statuses, workflow=workflow, version=version, version_ids=ids, queue=queue, tags=check_tags(tag),
        since=stored_moment(since, "since"), until=stored_moment(until, "until"), before=before, limit=PAGE,
    )  # fmt: skip


async def _place_of(connection: Connection, cursor: str) -> tuple[int, str]:
    try:
        row: RunRow | Tombstone | None = await find(connection, cursor)
    except RunNotFound:
        row = None
    if not isinstance(row, RunRow):
        message = f"the cursor {cursor!r} is not the id of a run"
        raise UsageError(message)
    return row.created_at, row.id


def stored_moment(at: datetime | None, what: str) -> int | None:
    """Return a time as it is stored. Raises `UsageError` for one without a zone."""
    if at is None:
        return None
    if not isinstance(at, datetime):
        message = f"{what} must be a datetime, not {at!r}"
        raise InvalidValue(message)
    if at.tzinfo is None:
        message = f"the time {at.isoformat()} needs a time zone"
        raise UsageError(message, hint="use datetime.now(UTC), or .astimezone()")
    return round(at.timestamp() * 1_000_000)


async def pages(connection: Connection, query: RunFilter, limit: int | None) -> AsyncIterator[RunInfo]:
    """Iterate over a listing, a page at a time. Raises `InvalidValue` for a limit that is no number of runs."""
    if limit is not None and (type(limit) is not int or limit < 0):
        message = f"limit must be a whole number of at least 0, not {limit!r}"
        raise InvalidValue(message)
    left = limit
    while left is None or left > 0:
        size = PAGE if left is None else min(PAGE, left)
        rows: list[RunRow] = await connection.read(connection.store.list, query._replace(limit=size))
        for row in rows:
            yield to_info(row)
        if len(rows) < size:
            return
        left = None if left is None else left - len(rows)
        query = query._replace(before=(rows[-1].created_at, rows[-1].id))
