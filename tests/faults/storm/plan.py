"""Random programs, and what each must come to: computed here, by code that knows nothing of the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

MODULUS = 1_000_003


@dataclass(frozen=True)
class Plan:
    """One run: what it does, and what must be seen of it afterwards."""

    run_id: str
    flow: str
    ops: list[dict[str, Any]]
    answer: int
    status: str
    keyed: dict[int, int] = field(default_factory=dict)
    """Number of an operation to the value its keyed effect must have been given, exactly once."""
    usual: dict[int, int] = field(default_factory=dict)
    """Number of an operation to how often it is attempted without faults."""
    once: frozenset[int] = frozenset()
    width: int = 1
    """How many steps may be under way at one time."""


def make(seed: int, number: int) -> Plan:
    """Return the run with this number of the storm with this seed."""
    random = Random(seed * 100_003 + number)
    flow = random.choice(["body", "body", "body", "sync_body", "doomed"])
    acc, n, width = number, 0, 1
    ops: list[dict[str, Any]] = []
    keyed: dict[int, int] = {}
    usual: dict[int, int] = {}
    once: set[int] = set()

    def step(kind: str) -> dict[str, Any]:
        nonlocal n
        n += 1
        op: dict[str, Any] = {
            "op": kind,
            "n": n,
            "value": random.randrange(1000),
            "ms": random.choice([0, 20, 60, 300]),
        }
        if kind == "retry":
            op["fails"] = random.randrange(1, 4)
        if kind in ("add", "sync", "retry"):
            keyed[n] = op["value"]
        usual[n] = 1 + op.get("fails", 0)
        if kind == "once":
            once.add(n)
        return op

    for _ in range(random.randrange(4, 10)):
        kind = random.choice(["add", "add", "sync", "ahead", "none", "retry", "once", "gather", "sleep", "mark"])
        if kind == "gather" and flow != "sync_body":
            parts = [step("add") for _ in range(random.randrange(2, 4))]
            width = max(width, len(parts))
            ops.append({"op": "gather", "parts": parts})
            for part in parts:
                acc = fold(acc, part["value"])
        elif kind in ("sleep", "mark", "gather"):
            ops.append({"op": "mark" if kind == "mark" else "sleep", "ms": random.randrange(5, 200)})
        else:
            op = step(kind)
            ops.append(op)
            if kind != "once":
                acc = fold(acc, op["value"])
    if flow == "doomed":
        ops.append(step("add"))  # its clean-up
    status = "cancelled" if flow == "doomed" else "completed"
    pure = {op["n"] for op in ops if op["op"] in ("ahead", "none")}
    usual = {n: times for n, times in usual.items() if n not in pure}
    return Plan(f"run-{number}", flow, ops, acc, status, keyed, usual, frozenset(once), width)


def fold(acc: int, value: int) -> int:
    """Take one more value into an answer; the order matters."""
    return (acc * 31 + value) % MODULUS
