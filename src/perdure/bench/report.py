"""The figures as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from perdure.bench.figure import Figure
from perdure.bench.session import Taken

MARKS = {"goal": "goal reached", "pass": "passed", "miss": "MISSED", "": ""}


def lines(taken: Taken) -> Iterator[str]:
    """Return one group as a table."""
    yield taken.group
    for figure in taken.figures:
        number = f"{figure.name:<34}{_digits(figure.value):>12} {figure.unit:<3}"
        yield f"  {number} {_spread(figure):<20}{_marks(figure)}".rstrip()


def summary(found: list[Taken]) -> str:
    """Return how many of the figures that are held to something reached it."""
    verdicts = Counter(figure.verdict for taken in found for figure in taken.figures if figure.verdict)
    reached = verdicts["goal"] + verdicts["pass"]
    return f"{reached} of {verdicts.total()} figures reach their floor, {verdicts['goal']} of them their goal as well"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _spread(figure: Figure) -> str:
    if len(figure.samples) < 2:
        return ""
    return f"[{_digits(min(figure.samples))}-{_digits(max(figure.samples))}]"


def _marks(figure: Figure) -> str:
    if figure.floor is None:
        return ""
    sign = "at least" if figure.better == "higher" else "at most"
    goal = "" if figure.goal is None else f", goal {_plain(figure.goal)}"
    return f"{MARKS[figure.verdict]}: {sign} {_plain(figure.floor)}{goal}"


def _plain(value: float) -> str:
    return f"{value:,g}" if value < 1_000_000 else f"{value:,.0f}"
