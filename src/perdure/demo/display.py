"""What the demonstration shows: a bar on a terminal, plain lines elsewhere, and the table at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from perdure.demo.ledger import SERVICES
from perdure.demo.play import Outcome, Scene

WIDTH = 30
TITLES = {"reserve": "reserved", "charge": "charged", "ship": "shipped", "notify": "notified"}


class Stage:
    """Draws scenes as they come."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._tenth = -1

    def __call__(self, scene: Scene) -> None:
        """Show how far it is."""
        if scene.killed:
            self._line(f"kill -9 number {scene.kills}: a worker with {scene.killed} requests under way")
        if scene.deployed:
            self._line(f"release 1.1.0 deployed, source of 1.0.0 deleted: {scene.deployed} orders of 1.0.0 under way")
        tenth = scene.done * 10 // scene.orders
        if self._terminal:
            filled = scene.done * WIDTH // scene.orders
            bar = "#" * filled + "." * (WIDTH - filled)
            self._write(f"\r\x1b[K[{bar}] {scene.done}/{scene.orders} orders, workers killed: {scene.kills}")
        elif tenth > self._tenth:
            self._write(f"{scene.done} of {scene.orders} orders done, workers killed: {scene.kills}\n")
        self._tenth = max(tenth, self._tenth)

    def close(self) -> None:
        """Take the bar away."""
        if self._terminal:
            self._write("\r\x1b[K")

    def _line(self, text: str) -> None:
        self._write(f"\r\x1b[K{text}\n" if self._terminal else f"{text}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def table(outcome: Outcome) -> str:
    """Return the proof as text."""
    return "\n".join(_lines(outcome)) + "\n"


def _lines(outcome: Outcome) -> Iterator[str]:
    audit = outcome.audit
    yield "What the services outside recorded (their ledger, not the engine's database)"
    yield _row("orders paid", audit.orders)
    for service in SERVICES:
        yield _row(f"{TITLES[service]} exactly once", audit.once[service], _mark(audit.once[service] == audit.orders))
    yield _row("done twice", audit.twice, _mark(audit.twice == 0))
    yield _row("lost", audit.lost, _mark(audit.lost == 0))
    yield _row("wrong amount or no such order", audit.strangers, _mark(audit.strangers == 0))
    yield ""
    yield "What happened on the way"
    sent = outcome.new + outcome.duplicates + outcome.conflicts
    yield _row("payment callbacks delivered", sent, f"{outcome.new} new")
    yield _row("duplicates, attached to their run", outcome.duplicates)
    yield _row("conflicts, same id and another body", outcome.conflicts, "refused")
    yield _row("workers killed with kill -9", outcome.kills, f"{outcome.cut} requests under way")
    yield _row("requests to the services", audit.calls)
    why = f"{audit.refused} had been turned away, {audit.replies_lost} never answered, the rest cut off by kills"
    yield _row("of them step re-attempts", audit.reattempts, why)
    yield _row("of them done before, same key", audit.repeated, "the key kept them from happening twice")
    yield ""
    yield "What the new release changed on the way: a step in front, a helper renamed, the old source deleted"
    for release, count in outcome.begun.items():
        yield _row(f"orders that began on {release}", count)
    yield _row("of 1.0.0 under way at the deploy", outcome.under_way, _mark(outcome.under_way > 0))
    yield _row("orders with effects of other code", outcome.strayed, _mark(outcome.strayed == 0))
    yield ""
    verdict = "The ledger balances" if outcome.balanced else "THE LEDGER DOES NOT BALANCE"
    yield f"{verdict}. {outcome.seconds:.1f} s."
    if not outcome.balanced:
        yield "Runs by state: " + ", ".join(f"{count} {state}" for state, count in sorted(outcome.runs.items()))


def _row(title: str, count: int, remark: str = "") -> str:
    return f"  {title:<36}{count:>6}  {remark}".rstrip()


def _mark(good: bool) -> str:  # noqa: FBT001 - one value, shown
    return "ok" if good else "WRONG"
