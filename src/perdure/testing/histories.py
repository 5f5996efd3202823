"""Recorded runs beside the code at hand, for the tests of an application."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.codec.base import open_chain
from perdure.errors import UsageError
from perdure.replay.here import check_here
from perdure.replay.history import History, parse
from perdure.replay.pool import Pool
from perdure.replay.verdict import Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perdure.api.decorators import Workflow

    Source = str | os.PathLike[str] | History

__all__ = ["History", "Verdict", "VerdictKind", "assert_replays", "load_histories", "replay"]


def load_histories(path: str | os.PathLike[str]) -> list[History]:
    """Return the recorded runs of a history file, or of all files ``*.jsonl`` in a folder and below, by name.

    Raises:
        UsageError: it is not there, or no history file.
    """
    place = Path(path)
    files = sorted(place.rglob("*.jsonl")) if place.is_dir() else [place]
    if not files:
        message = f"there is no history file in {place}"
        raise UsageError(message, hint="`perdure history ID --export FILE` writes one")
    try:
        return [history for file in files for history in parse(file.read_text("utf-8"), str(file))]
    except (OSError, UnicodeError) as error:
        message = f"history files cannot be read: {error}"
        raise UsageError(message) from None


def replay(
    history: Source, workflow: Workflow[Any, Any], *, processes: int = 2,
    codec: tuple[str, Mapping[str, Any]] | None = None,
) -> Verdict:  # fmt: skip
    """Replay a recorded run with a workflow, without calling a step, and return what was found.

    Args:
        history: a history file with one run, or a recorded run, as `Run.recording` returns it.
        workflow: the workflow; its name need not be the recorded one.
        processes: replay in so many processes, each with another hash seed; 0 for this process.
        codec: name and options of the codec that values were stored with, if it needs any.

    Raises:
        UsageError: no history file, or several runs in it; or another process could not find the workflow.
    """
    found = [history] if isinstance(history, History) else load_histories(history)
    if len(found) != 1:
        message = f"{history} holds {len(found)} runs"
        raise UsageError(message, hint="use assert_replays() for several")
    return _check(found, {found[0].workflow: workflow}, processes, codec)[0]


def assert_replays(
    histories: Source | Iterable[Source], *workflows: Workflow[Any, Any], processes: int = 2,
    accept: Iterable[str] = (), codec: tuple[str, Mapping[str, Any]] | None = None,
) -> list[Verdict]:  # fmt: skip
    """Replay recorded runs, and fail with a line for each that these workflows could not carry on.

    Args:
        histories: history files, folders of them, or recorded runs.
        *workflows: the workflows; each run is replayed with the one of its name.
        processes: see `replay`.
        accept: verdicts that are no failure beside ``SAFE``, such as ``"SAFE_ARGS_DIFFER"``.
        codec: see `replay`.

    Raises:
        AssertionError: a run got another verdict.
        UsageError: see `replay`; or there is no workflow for a run.
    """
    given = [histories] if isinstance(histories, str | os.PathLike | History) else list(histories)
    found = [one for each in given for one in ([each] if isinstance(each, History) else load_histories(each))]
    known = {workflow.name: workflow for workflow in workflows}
    missing = sorted({history.workflow for history in found} - set(known))
    if missing:
        message = f"there are recorded runs of {', '.join(missing)}, and no such workflow was given"
        raise UsageError(message)
    verdicts = _check(found, known, processes, codec)
    fine = {VerdictKind.SAFE, *map(VerdictKind, accept)}
    bad = [str(verdict) for verdict in verdicts if verdict.kind not in fine]
    if bad:
        raise AssertionError("\n".join([f"{len(bad)} of {len(verdicts)} recorded runs do not replay:", *bad]))
    return verdicts


def _check(
    histories: list[History], workflows: Mapping[str, Workflow[Any, Any]], processes: int,
    codec: tuple[str, Mapping[str, Any]] | None,
) -> list[Verdict]:  # fmt: skip
    name, options = codec or (histories[0].codec, {})
    definitions = {recorded: workflow.definition for recorded, workflow in workflows.items()}
    if processes == 0:
        chain = open_chain((name,), {name: options})
        return [check_here(history, definitions[history.workflow], chain) for history in histories]
    used = {recorded: definitions[recorded] for recorded in {history.workflow for history in histories}}
    pool = Pool(used, codec=name, options=options, processes=processes)
    try:
        return [pool.check(history) for history in histories]
    finally:
        pool.close()
