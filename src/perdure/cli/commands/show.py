"""``perdure show``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from perdure.api.waiting import Wait, waits_of
from perdure.cli import options
from perdure.cli.output import ago, pairs, print_facts, print_json, when
from perdure.cli.session import read
from perdure.cli.versions import told
from perdure.model.status import EventType, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.api.engine import Engine
    from perdure.api.reading import Event, RunInfo
    from perdure.api.version_info import BindingInfo


@click.command("show")
@click.argument("run_id", metavar="ID")
@options.database
@options.as_json
def command(*, run_id: str, db: str, as_json: bool) -> None:
    """Show one run: where it stands, how it ended.

    Also what it waits for, its last checkpoint and what it has published.
    """

    async def work(engine: Engine) -> tuple[RunInfo, list[Event], BindingInfo | None]:
        run = engine.get(run_id)
        info = await run.info()
        if info.purged:
            return info, [], None
        return info, await run.history(), await engine.versions.of(run_id)

    document = _document(*read(db, work))
    if as_json:
        print_json(document)
    else:
        print_facts(_facts(**document))


def _document(info: RunInfo, events: list[Event], binding: BindingInfo | None) -> dict[str, Any]:
    last = next((event for event in reversed(events) if event.type == EventType.CHECKPOINT_REACHED), None)
    failure = next((event.error for event in reversed(events) if event.type == EventType.RUN_FAILED), None)
    return {
        "run": info,
        "binding": None if binding is None else replace(binding, operations=()),
        "checkpoint": None if last is None else {"name": last.name, "data": last.result, "at": last.at},
        "waits_for": waits_of(info, events, datetime.now(UTC)),
        "values": {event.name: event.result for event in events if event.type == EventType.VALUE_PUBLISHED},
        "result": events[-1].result if info.status == Status.COMPLETED and events else None,
        "failure": failure if info.status == Status.FAILED else None,
        "events": len(events),
    }


def _facts(
    run: RunInfo, binding: BindingInfo | None, checkpoint: dict[str, Any] | None, waits_for: Sequence[Wait],
    values: dict[str, Any], result: Any, failure: str | None, events: int,
) -> list[tuple[str, Any]]:  # fmt: skip
    return [
        ("run", run.id),
        ("workflow", f"{run.workflow} {run.version}".strip()),
        ("status", run.status.value),
        ("detail", run.detail),
        ("queue", run.queue),
        ("priority", run.priority or None),
        ("tags", pairs(run.tags)),
        ("owner", run.owner),
        ("claims", run.epoch or None),
        # Of a purged run the store keeps one time only: when it was purged.
        ("created", None if run.purged else run.created_at),
        ("purged" if run.purged else "updated", run.updated_at),
        ("events", events or None),
        ("version", None if binding is None or binding.sha256 is None else told(binding)),
        ("checkpoint", None if checkpoint is None else f"{checkpoint['name']} at {when(checkpoint['at'])}"),
        *(("waits for", _wait(wait)) for wait in waits_for),
        *((f"value {name}", value) for name, value in values.items()),
        ("result", result),
        ("failure", failure),
    ]


def _wait(wait: Wait) -> str:
    noun = {"worker": "a worker for queue", "time": "its time", "person": "a person"}.get(wait.kind, wait.kind)
    parts = [noun if wait.name is None else f"{noun} {wait.name}"]
    if wait.attempt is not None:
        parts.append(f"attempt {wait.attempt}")
    if wait.due is not None:
        left = (wait.due - datetime.now(UTC)).total_seconds()
        parts.append(f"due {when(wait.due)} ({f'in {ago(left)}' if left > 0 else f'{ago(-left)} ago'})")
    if wait.detail is not None:
        parts.append(wait.detail)
    return ", ".join(parts)
