"""Starting runs: checks everything before the first write, and makes a repeat of a start change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.codec.signature import decode_call, digest, encode_call, encode_unknown, from_json_input
from perdure.errors import CodecError, IdConflict, InvalidValue, UsageError
from perdure.kernel.definition import check_name
from perdure.model.duration import microseconds
from perdure.model.event import EMPTY_TAIL, Draft, seal
from perdure.model.run import RunRow, Tombstone
from perdure.model.status import EventType, Status
from perdure.model.write import Create, Existing, Failed
from perdure.runtime.ids import uuid7

if TYPE_CHECKING:
    from perdure.api.binding import Bound
    from perdure.codec.base import Codec
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.model.duration import Duration
    from perdure.model.event import Event
    from perdure.model.write import Outcome
    from perdure.runtime.connection import Connection
    from perdure.runtime.worker import Worker

_PRIORITY = 2**31
_PARTITION_KEY = 200
_STARTED: str = EventType.RUN_STARTED.value
_PENDING: str = Status.PENDING.value
_RUNNING: str = Status.RUNNING.value


def new_id() -> str:
    """Return a new run id; later ones sort after earlier ones."""
    return uuid7()


def checked_id(run_id: str | None) -> str:
    """Return the id of a start, or a new one. Raises `UsageError`."""
    return uuid7() if run_id is None else check_name(run_id, "a run id")


def json_arguments(definition: WorkflowDefinition, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that JSON text gives: an object by name, an array in order, anything else the only one.

    Raises:
        UsageError: not JSON, or the workflow does not take them; one line.
    """
    return from_json_input(definition.signature, text, label=definition.name)


def encode_input(
    name: str, definition: WorkflowDefinition | None, args: tuple[Any, ...], kwargs: dict[str, Any], codec: Codec
) -> bytes:
    """Return the stored form of a start's arguments.

    Raises:
        UsageError: the function would refuse them.
        CodecError: one cannot be stored; says which, where and why.
    """
    if definition is not None:
        return encode_call(definition.signature, args, kwargs, codec, label=f"start({name})")
    return encode_unknown(args, kwargs, codec, label=f"start({name})")


def start_digest(workflow: str, given: bytes, codec: Codec) -> int:
    """Return what two starts of one id must have in common to be the same start."""
    data = f"{workflow}\x00{digest(given, codec, named=True)!s}".encode()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big", signed=True)


def check_tags(tags: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Return tags as sorted pairs. Raises `UsageError`."""
    if tags is None:
        return ()
    if not isinstance(tags, Mapping):
        message = f"tags must map text to text, not be {tags!r}"
        raise InvalidValue(message)
    for key, value in tags.items():
        check_name(key, "a tag's name")
        check_name(value, f"the value of tag {key!r}")
    return tuple(sorted(tags.items()))


def prepare(
    connection: Connection, workflow: WorkflowDefinition | str, args: tuple[Any, ...], kwargs: dict[str, Any], *,
    queue: str, bound: Bound, run_id: str, fresh: bool, priority: int = 0, delay: Duration | None = None,
    timeout: Duration | None = None, tags: Mapping[str, str] | None = None, partition_key: str | None = None,
    deduplication_key: str | None = None, claim_for: Worker | None,
) -> Create:  # fmt: skip
    """Return the write that records a run, claimed for ``claim_for`` at once if given.

    Raises:
        UsageError: an option has a wrong value.
        CodecError: an argument cannot be stored.
    """
    definition = None if isinstance(workflow, str) else workflow
    name = workflow if isinstance(workflow, str) else workflow.name
    _check_place(queue, priority, partition_key, deduplication_key)
    given = encode_input(name, definition, args, kwargs, connection.codec)
    pairs = check_tags(tags)
    now = connection.store.now()
    wake_at = now + (0 if delay is None else microseconds(delay, "delay"))
    deadline = None if timeout is None else now + microseconds(timeout, "timeout")
    if deadline is not None and deadline <= wake_at:
        message = f"timeout ({timeout!r}) must be longer than delay ({delay or 0!r}): the run could never begin in time"
        raise InvalidValue(message)
    started = Draft(_STARTED, now, state=f">{_PENDING}", input=given, detail=bound.facts)
    drafts: tuple[Draft, ...] = (started,)
    status, owner, epoch = _PENDING, None, 0
    if claim_for is not None and wake_at <= now:
        drafts = (started, claim_for.claim_draft(now, bound.label))
        status, owner, epoch = _RUNNING, claim_for.id, 1
    row = RunRow._make((  # half as dear as its constructor
        run_id, name, bound.label, status, queue, priority, None if owner else wake_at, owner, epoch, 0, deadline,
        start_digest(name, given, connection.codec), msgspec.json.encode(dict(pairs)).decode() if pairs else None, None,
        now, now, partition_key, bound.version_id,
    ))  # fmt: skip
    events = seal(run_id, EMPTY_TAIL, drafts, epoch, connection.commit_ids.take())
    return Create(row, events, fresh, pairs, deduplication_key, bound.version_count)


def _check_place(queue: str, priority: int, partition_key: str | None, deduplication_key: str | None) -> None:
    check_name(queue, "a queue's name")
    if type(priority) is not int or not -_PRIORITY <= priority < _PRIORITY:
        message = f"priority must be a whole number of 32 bits, not {priority!r}"
        raise InvalidValue(message)
    if partition_key is not None:
        check_name(partition_key, "a partition key")
        if len(partition_key) > _PARTITION_KEY:
            message = f"a partition key must be a text of 1 to {_PARTITION_KEY} characters, not of {len(partition_key)}"
            raise InvalidValue(message)
    if deduplication_key is not None:
        check_name(deduplication_key, "a deduplication key")


def found_by_key(create: Create, outcome: Existing) -> str | None:
    """Return the id of the run that has the deduplication key; None if it was the id that was taken."""
    found = outcome.row
    return found.id if isinstance(found, RunRow) and found.id != create.row.id else None


async def check_existing(
    connection: Connection, create: Create, outcome: Outcome, definition: WorkflowDefinition | None
) -> None:
    """Accept a repeat of the same start; refuse another start under the same id.

    The first start may have been made where the workflow is not known, so that its arguments have no names or are not
    in the form their annotations give them. Then they are brought into that form before they are compared.

    Raises:
        IdConflict: the id belongs to a run of another workflow, or with another input.
    """
    if isinstance(outcome, Failed):
        raise outcome.error
    if not isinstance(outcome, Existing):
        return
    found: RunRow | Tombstone = outcome.row
    row = create.row
    if found.workflow != row.workflow:
        message = f"run id {row.id!r} belongs to a run of workflow {found.workflow!r}, not {row.workflow!r}"
        raise IdConflict(row.id, message)
    if found.input_digest != row.input_digest and not await _is_same_call(connection, found, row, definition):
        message = f"run id {row.id!r} belongs to a run of {row.workflow!r} with another input"
        raise IdConflict(row.id, message)


async def _is_same_call(
    connection: Connection, found: RunRow | Tombstone, row: RunRow, definition: WorkflowDefinition | None
) -> bool:
    if definition is None or isinstance(found, Tombstone):
        return False
    codec = connection.codec
    events: list[Event] = await connection.read(connection.store.load, found.id, 0, 1)
    if not events:
        return False  # purged since the create was refused
    try:
        args, kwargs = decode_call(definition.signature, events[0].input or b"{}", codec)
        given = encode_call(definition.signature, args, kwargs, codec)
    except (CodecError, UsageError):
        return False
    return start_digest(row.workflow, given, codec) == row.input_digest
