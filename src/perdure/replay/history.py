"""A recorded run by itself: all that a check needs, and its form as a file.

A history file is JSON lines. A run begins with a line that has ``perdure_history``, the version of the form; each line
after it is one event of its log. Stored values stand in it as the codec wrote them, without compression or encryption;
what is not JSON stands in Base64 under ``input64`` or ``payload64``. A file may hold several runs.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.codec.base import ENVELOPE, Chain
from perdure.errors import UsageError
from perdure.model.event import Event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.codec.base import Codec
    from perdure.model.run import RunRow

FORM = 1
_MARK = "perdure_history"
_PLAIN = ("seq", "type", "op", "kind", "name", "attempt", "at", "epoch", "state", "digest")
_VALUES = ("detail", "input", "payload")
_EMPTY: dict[str, Any] = dict.fromkeys(Event._fields) | {"attempt": 0, "commit_id": 0, "chain": b""}


class History(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded run.

    Attributes:
        run_id: id of the run.
        workflow: name of its workflow.
        version: version it was recorded with.
        tags: tags given at its start, as a JSON object; None if there are none.
        codec: name of the codec its values were stored with.
        events: its log.
    """

    run_id: str
    workflow: str
    version: str
    tags: str | None
    codec: str
    events: tuple[Event, ...]

    def dump(self) -> str:
        """Return it as lines of a history file."""
        head = {
            _MARK: FORM, "run_id": self.run_id, "workflow": self.workflow, "version": self.version,
            "tags": msgspec.json.decode(self.tags or "{}"), "codec": self.codec,
        }  # fmt: skip
        lines = [msgspec.json.encode(head), *(msgspec.json.encode(_line(event)) for event in self.events)]
        return b"\n".join([*lines, b""]).decode()


def record(row: RunRow, events: Iterable[Event], codec: Codec) -> History:
    """Return what the database holds of a run, by itself."""
    assert isinstance(codec, Chain)  # noqa: S101 - whatever an engine opens is one

    def bare(data: bytes | None) -> bytes | None:
        return codec.unwrap(data) if data and data[0] == ENVELOPE else data

    kept = tuple(event._replace(input=bare(event.input), payload=bare(event.payload)) for event in events)
    return History(
        run_id=row.id, workflow=row.workflow, version=row.workflow_version, tags=row.tags, codec=codec.codec.name,
        events=kept,
    )  # fmt: skip


def parse(text: str, source: str) -> list[History]:
    """Return the runs of a history file.

    Args:
        text: its contents.
        source: what to call it in messages.

    Raises:
        UsageError: it is no history file, or one of a later form.
    """
    runs: list[History] = []
    head: dict[str, Any] | None = None
    events: list[Event] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            read = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
            if _MARK in read:
                runs += _close(head, events)
                head, events = _head(read), []
            else:
                events.append(_event(read, head["run_id"] if head else ""))
        except (msgspec.MsgspecError, ValueError, KeyError) as error:
            message = f"{source}, line {number}: {error}"
            raise UsageError(message, hint="`perdure history ID --export FILE` writes a history file") from None
    runs += _close(head, events)
    if not runs:
        message = f"{source} holds no recorded run"
        raise UsageError(message, hint="`perdure history ID --export FILE` writes a history file")
    return runs


def _close(head: dict[str, Any] | None, events: list[Event]) -> list[History]:
    if head is None:
        return []
    return [History(**head, events=tuple(events))]


def _head(read: dict[str, msgspec.Raw]) -> dict[str, Any]:
    values = {name: msgspec.json.decode(raw) for name, raw in read.items()}
    if values.pop(_MARK) != FORM:
        message = f"this release reads history files of form {FORM}"
        raise ValueError(message)
    tags = values.pop("tags", None)
    values = {name: str(values[name]) for name in ("run_id", "workflow", "version", "codec")}
    return {**values, "tags": msgspec.json.encode(tags).decode() if tags else None}


def _line(event: Event) -> dict[str, Any]:
    line = {name: value for name in _PLAIN if (value := getattr(event, name)) != _EMPTY[name]}
    for name in _VALUES:
        data: bytes | None = getattr(event, name)
        if data is None:
            continue
        if _stands_in_line(data):
            line[name] = msgspec.Raw(data)
        else:
            line[f"{name}64"] = base64.b64encode(data).decode()
    return line


def _stands_in_line(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return b"\n" not in data and b"\r" not in data


def _event(read: dict[str, msgspec.Raw], run_id: str) -> Event:
    if not run_id:
        message = f"the first line has no {_MARK!r}"
        raise ValueError(message)
    values = {name: msgspec.json.decode(read[name]) for name in _PLAIN if name in read}
    for name in _VALUES:
        if name in read:
            values[name] = bytes(read[name])
        elif f"{name}64" in read:
            values[name] = base64.b64decode(msgspec.json.decode(read[f"{name}64"]))
    return Event(**{**_EMPTY, **values, "run_id": run_id})
