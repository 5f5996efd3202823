"""Rules about what is derived from a log: the run's row, its messages, its tags."""

from __future__ import annotations

import json
from collections.abc import Iterator

from perdure.verify.evidence import Case, Fact, Finding, detail_of

OPEN = ("pending", "running", "waiting", "paused", "parked")
ENDED = frozenset({"completed", "failed", "cancelled", "terminated", "continued"})
LEGAL: dict[str, tuple[tuple[str, ...], str]] = {
    "run_started": (("",), "pending"),
    "run_claimed": (("pending", "waiting", "running"), "running"),
    "run_released": (("running",), "pending"),
    "run_waiting": (("running",), "waiting"),
    "run_parked": (("pending", "waiting", "running"), "parked"),
    "run_unparked": (("parked",), "pending"),
    "run_paused": (("pending", "waiting", "running"), "paused"),
    "run_resumed": (("paused",), "pending"),
    "run_completed": (("running",), "completed"),
    "run_failed": (("running",), "failed"),
    "run_continued": (("running",), "continued"),
    "run_cancelled": (OPEN, "cancelled"),
    "run_terminated": (OPEN, "terminated"),
    "run_reopened": (("failed",), "pending"),
    "run_upgraded": (OPEN, "pending"),
    "run_forked": (OPEN, "pending"),
}
"""Event type to the states it may happen in and the state it leads to."""


def transitions(case: Case) -> Iterator[Finding]:
    """I8: every change of state is one of the life cycle, and nothing follows an end but an operator's retry."""
    status = ""
    for fact in case.facts:
        rule = LEGAL.get(fact.type)
        if status in ENDED and fact.type != "run_reopened":
            yield Finding("ended", case.row.id, fact.seq, f"{fact.type} after the run was {status}")
        elif rule is not None and status not in rule[0]:
            yield Finding("transition", case.row.id, fact.seq, f"{fact.type} in state {status or 'none'}")
        elif rule is None and status != "running":
            yield Finding(
                "transition", case.row.id, fact.seq, f"{fact.type} while the run is {status or 'not started'}"
            )
        after = rule[1] if rule else status
        if fact.type == "run_upgraded" and status == "paused":
            after = "paused"  # it stays so until somebody resumes it
        said = f"{status}>{after}" if rule else None
        if rule is not None and fact.state != said:
            yield Finding(
                "transition", case.row.id, fact.seq, f"{fact.type} says {fact.state!r}, the log says {said!r}"
            )
        elif rule is None and fact.state is not None:
            yield Finding("transition", case.row.id, fact.seq, f"{fact.type} changes no state, but says {fact.state!r}")
        status = after


def fold(facts: list[Fact]) -> tuple[str, Fact | None]:
    """Return the state a log leads to and the event that led to it."""
    last = next((fact for fact in reversed(facts) if fact.type in LEGAL), None)
    if last is None:
        return "", None
    paused = last.type == "run_upgraded" and last.state == "paused>paused"
    return "paused" if paused else LEGAL[last.type][1], last


def status(case: Case) -> Iterator[Finding]:
    """I7: the row says what the log adds up to: state, epoch, owner."""
    row = case.row
    expected, last = fold(case.facts)
    if row.status != expected:
        yield Finding("status", row.id, None, f"the row says {row.status}, the log {expected or 'nothing'}")
    if last is None:
        return
    epoch = case.facts[-1].epoch
    if row.epoch != epoch:
        yield Finding("row epoch", row.id, None, f"the row says epoch {row.epoch}, the log {epoch}")
    owner = detail_of(last).get("worker") if last.type == "run_claimed" else None
    if row.owner != owner:
        yield Finding("owner", row.id, None, f"the row says {row.owner or 'nobody'}, the log {owner or 'nobody'}")


def due(case: Case) -> Iterator[Finding]:
    """I9: a run that is to go on has a time to wake up; one that is owned, stopped or ended has none."""
    row = case.row
    if row.status not in ("pending", "waiting"):
        if row.wake_at is not None:
            yield Finding("due", row.id, None, f"the run is {row.status} and has a time to wake up")
        return
    if row.wake_at is None:
        yield Finding(
            "due", row.id, None, f"the run is {row.status} and has no time to wake up: nobody will ever claim it"
        )
        return
    _, last = fold(case.facts)
    if last is None or last.type not in ("run_waiting", "run_released"):
        return
    wanted = detail_of(last).get("wake_at")
    sent = row.inbox_n > taken_in(case.facts)
    if wanted != row.wake_at and not (sent and (wanted is None or row.wake_at < wanted)):
        yield Finding("due", row.id, None, f"the row wakes up at {row.wake_at}, the log says {wanted}")


def taken_in(facts: list[Fact]) -> int:
    """Return the number of the last message that the log took in."""
    return max((number for fact in facts if (number := _number(fact)) is not None), default=0)


def inbox(case: Case) -> Iterator[Finding]:
    """I10: every message is in the inbox or in the log, once, and taken in by number."""
    consumed = [(fact.seq, number) for fact in case.facts if (number := _number(fact)) is not None]
    last = 0
    for seq, number in consumed:
        if number != last + 1:
            yield Finding("inbox", case.row.id, seq, f"takes in message {number}, where {last + 1} is next")
        last = max(last, number)
    there = sorted(case.inbox)
    if there != list(range(last + 1, case.row.inbox_n + 1)):
        text = f"{case.row.inbox_n} messages were sent, {last} are in the log, and {there} wait"
        yield Finding("inbox", case.row.id, None, text)


def tags(case: Case) -> Iterator[Finding]:
    """The tag table says what the run's row says."""
    try:
        said = set(json.loads(case.row.tags).items()) if case.row.tags else set()
    except (ValueError, AttributeError):
        yield Finding("tags", case.row.id, None, "the row's tags cannot be read")
        return
    for key, value in sorted(said - case.tags):
        yield Finding("tags", case.row.id, None, f"cannot be found by its tag {key}={value}")
    for key, value in sorted(case.tags - said):
        yield Finding("tags", case.row.id, None, f"is found by {key}={value}, which is no tag of it")


_FROM_INBOX = frozenset({"cancel_requested", "yield_requested", "step_returned"})


def _number(fact: Fact) -> int | None:
    number = detail_of(fact).get("n") if fact.type in _FROM_INBOX else None
    return number if isinstance(number, int) else None
