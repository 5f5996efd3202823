"""Rules about the log itself: its places, its chain, its times, its owners, its results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from msgspec.msgpack import encode as pack

from perdure.verify.evidence import Case, Fact, Finding, Unreadable, detail_of, facts_in

RESULTS = frozenset(
    {
        "step_completed", "step_failed", "step_cancelled", "timer_fired", "checkpoint_reached", "value_published",
        "patch_taken",
    }
)  # fmt: skip
"""Events that answer an operation for good."""
ATTEMPTS = frozenset({"step_attempt_failed", "step_intent", "step_heartbeat", "step_sent"})


def sequence(case: Case) -> Iterator[Finding]:
    """I5: places are 1, 2, 3, ... without a gap, and the first event starts the run."""
    if not case.facts:
        yield Finding("sequence", case.row.id, None, "the run has no log")
        return
    for place, fact in enumerate(case.facts, start=1):
        if fact.seq != place:
            yield Finding("sequence", case.row.id, place, f"the log has event {fact.seq} where {place} belongs")
            return
    if case.facts[0].type != "run_started":
        yield Finding("sequence", case.row.id, 1, f"the log begins with {case.facts[0].type}")
    for fact in case.facts[1:]:
        if fact.type == "run_started":
            yield Finding("sequence", case.row.id, fact.seq, "the run is started a second time")


def chain(case: Case) -> Iterator[Finding]:
    """I5: every event carries the digest over itself and all before it."""
    link = bytes(16)
    for fact in case.facts:
        link = digest(link, case.row.id, fact)
        if fact.chain != link:
            yield Finding(
                "chain", case.row.id, fact.seq, "contents or predecessor were changed after they were recorded"
            )
            return


def digest(before: bytes, run_id: str, fact: Fact) -> bytes:
    """Return the digest an event must carry: BLAKE2b, 16 bytes, over the digest before it and the packed row."""
    contents = (
        run_id, fact.seq, fact.at, fact.epoch, fact.type, fact.op, fact.kind, fact.name, fact.attempt, fact.state,
        fact.digest, fact.detail, fact.input, fact.payload,
    )  # fmt: skip
    return blake2b(before + pack(contents), digest_size=16).digest()


def times(case: Case) -> Iterator[Finding]:
    """I5: times never go back, and the run was created when it was started."""
    last = None
    for fact in case.facts:
        if last is not None and fact.at < last:
            yield Finding("time", case.row.id, fact.seq, f"recorded {last - fact.at} us before the event before it")
        last = fact.at
    first = next(
        (fact for fact in reversed(case.facts) if fact.type == "run_forked"), case.facts[0] if case.facts else None
    )
    if first is not None and case.row.created_at != first.at:
        yield Finding("time", case.row.id, None, "created at another time than its first event says")


def epochs(case: Case) -> Iterator[Finding]:
    """I4: ownership epochs grow by one with each claim or upgrade and never go back; each belongs to one owner."""
    epoch = 0
    for fact in case.facts:
        if fact.seq == 1 and fact.epoch in (0, 1):
            continue  # a run that its creator executes is started and claimed in one write, by the epoch of that claim
        taken = fact.type in ("run_claimed", "run_upgraded") or (fact.type == "run_parked" and fact.epoch == epoch + 1)
        right = epoch + 1 if taken else epoch
        if fact.epoch != right:
            yield Finding(
                "epoch", case.row.id, fact.seq, f"{fact.type} by epoch {fact.epoch}, where epoch {right} is due"
            )
        epoch = max(fact.epoch, right)
    if case.facts and case.facts[0].epoch == 1 and (len(case.facts) < 2 or case.facts[1].type != "run_claimed"):
        yield Finding("epoch", case.row.id, 1, "started by an owner that did not claim it")


@dataclass(slots=True)
class _Known:
    """What a log says about its operations so far."""

    names: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    """Kind and name."""
    results: dict[str, int] = field(default_factory=dict)
    """Place of the result that counts."""


def operations(case: Case) -> Iterator[Finding]:
    """I3, I12: an operation has one kind and name, and at most one result that no operator took back."""
    yield from _operations(case, len(case.facts), _Known())


def _operations(case: Case, end: int, known: _Known) -> Iterator[Finding]:
    for fact in case.facts[:end]:
        op = fact.op
        if (op is not None) != (fact.type in RESULTS or fact.type in ATTEMPTS):
            yield Finding(
                "operation", case.row.id, fact.seq, f"{fact.type} {'of no' if op is None else 'with an'} operation"
            )
        if fact.type == "run_reopened":
            causes, doubtful = _taken_back(fact, case.facts)
            for other in (*causes, *doubtful):
                known.results.pop(other, None)
        elif fact.type == "run_upgraded":
            _upgrade_known(case, fact, known)
        if op is None:
            continue
        name = known.names.setdefault(op, (fact.kind, fact.name))
        if name != (fact.kind, fact.name):
            text = f"operation {op} is {fact.kind} {fact.name!r} here, {name} before"
            yield Finding("operation", case.row.id, fact.seq, text)
        if fact.type in RESULTS:
            if op in known.results:
                yield Finding(
                    "result", case.row.id, fact.seq, f"operation {op} has a result already, event {known.results[op]}"
                )
            known.results[op] = fact.seq


def _upgrade_known(case: Case, fact: Fact, known: _Known) -> None:
    first, names = in_force(case, fact)
    if first is not None:
        before = _Known()
        for _ in _operations(case, first - 1, before):
            pass  # found when it was its turn
        known.names, known.results = before.names, before.results
    for op, (kind, name) in known.names.items():
        if kind == "step":
            known.names[op] = kind, names.get(name or "", name)


def in_force(case: Case, upgraded: Fact) -> tuple[int | None, dict[str, str]]:
    """Return from which place on an upgrade drops what was recorded, and what it calls steps; nothing if reverted."""
    if any(fact.type == "run_upgraded" and detail_of(fact).get("reverts") == upgraded.seq for fact in case.facts):
        return None, {}
    detail = detail_of(upgraded)
    first = detail.get("dropped_from")
    return first if isinstance(first, int) else None, detail.get("renamed") or {}


@dataclass(slots=True)
class _Tries:
    """What a log says about the attempts of one step."""

    failed: int = 0
    not_before: int = 0
    intent: int = 0
    done: bool = False
    in_doubt: bool = False
    """A retry has left open whether the step goes on where it was, or begins anew."""


def attempts(case: Case) -> Iterator[Finding]:
    """I3, I6: attempts are counted without a gap; nothing is attempted after the result, nor before its time."""
    yield from _attempts(case, len(case.facts), defaultdict(_Tries))


def _attempts(case: Case, end: int, steps: defaultdict[str, _Tries]) -> Iterator[Finding]:
    for fact in case.facts[:end]:
        if fact.type == "run_reopened":
            causes, doubtful = _taken_back(fact, case.facts)
            for op in doubtful:
                steps[op].in_doubt, steps[op].done, steps[op].not_before = True, False, 0
            steps.update({op: _Tries(failed=count) for op, count in causes.items()})
        elif fact.type == "run_upgraded" and (first := in_force(case, fact)[0]) is not None:
            steps.clear()
            for _ in _attempts(case, first - 1, steps):
                pass  # found when it was its turn
        if fact.op is None or fact.kind != "step":
            continue
        step = steps[fact.op]
        if step.in_doubt and fact.attempt == 1:
            step = steps[fact.op] = _Tries()
        text = _untimely(fact, step)
        if text is not None:
            yield Finding("attempt", case.row.id, fact.seq, f"{fact.type} of operation {fact.op}: {text}")
        if fact.type == "step_intent":
            step.intent = fact.attempt
        elif fact.type == "step_attempt_failed":
            step.failed, step.not_before = fact.attempt, int(detail_of(fact).get("next_at", 0))
        elif fact.type in RESULTS:
            step.done = True


def _untimely(fact: Fact, step: _Tries) -> str | None:
    if step.done:
        return None if fact.type in RESULTS else "it has its result already"  # two results are another rule's
    if fact.attempt != step.failed + 1:
        return f"attempt {fact.attempt}, where {step.failed + 1} is due"
    if fact.at < step.not_before and fact.type != "step_cancelled":
        return f"{step.not_before - fact.at} us before the attempt was due"
    if fact.type == "step_intent" and step.intent >= fact.attempt:
        return f"a second intent for attempt {fact.attempt}"
    return None


def _taken_back(reopened: Fact, facts: list[Fact]) -> tuple[dict[str, int], set[str]]:
    """Return what an operator's retry tries again, with the attempts made; and the operations it puts in doubt."""
    detail = detail_of(reopened)
    seqs = detail.get("cause_seqs") or [reopened.seq]
    causes = {fact.op: fact.attempt for fact in facts if fact.seq in seqs and fact.op is not None}
    between = range(min(seqs), reopened.seq)
    given_up = {fact.op for fact in facts if fact.type == "step_cancelled" and fact.seq in between and fact.op}
    return causes, (given_up | set(detail.get("followed_by") or ())) - set(causes)


def readable(case: Case) -> Iterator[Finding]:
    """Every detail is a JSON object."""
    for fact in case.facts:
        try:
            facts_in(fact.detail)
        except Unreadable as error:
            yield Finding("detail", case.row.id, fact.seq, f"the detail cannot be read: {error}")
