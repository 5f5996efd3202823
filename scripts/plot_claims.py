"""Draw what a claim costs beside ever longer queues, from the JSON of ``perdure bench --only claims``.

Usage: python scripts/plot_claims.py NAME=FILE.json ... > docs/how-to/claims.svg
"""

from __future__ import annotations

import json
import re
import sys
from math import log10
from pathlib import Path

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 340, 60, 110, 20, 50
COLOURS = ("#3465a4", "#c4661f", "#4e8a2b", "#75507b")
NAME = re.compile(r"claim of \d+, ([\d,]+) queued")

Points = list[tuple[int, float]]


def points(file: Path) -> Points:
    """Return pairs of runs that wait and milliseconds of a claim."""
    figures = json.loads(file.read_text("utf-8"))["figures"]["claims"]
    found = ((NAME.fullmatch(figure["name"]), figure["value"]) for figure in figures)
    return [(int(match[1].replace(",", "")), value / 1000) for match, value in found if match]


def drawn(lines: dict[str, Points]) -> str:
    """Return the picture."""
    top = max(cost for line in lines.values() for _, cost in line) * 1.2
    lengths = sorted({length for line in lines.values() for length, _ in line})
    first, last = log10(lengths[0]), log10(lengths[-1])

    def x(length: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (log10(length) - first) / (last - first)

    def y(cost: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * cost / top

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
        "<style>text { font: 12px sans-serif }</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    out.extend(
        f'<text x="{x(length):.0f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{length:,}</text>'
        for length in lengths
    )
    for step in range(5):
        cost = top * step / 4
        out.append(f'<path d="M{LEFT} {y(cost):.0f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(cost) + 4:.0f}" text-anchor="end">{cost:.1f}</text>')
    out.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">runs that wait</text>'
    )
    out.append(
        f'<text transform="translate(16 {HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">ms a claim of 10</text>'
    )
    for (name, line), colour in zip(lines.items(), COLOURS, strict=False):
        path = "L".join(f"{x(length):.1f} {y(cost):.1f}" for length, cost in line)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.extend(f'<circle cx="{x(n):.1f}" cy="{y(cost):.1f}" r="3" fill="{colour}"/>' for n, cost in line)
        out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{y(line[-1][1]) + 4:.0f}" fill="{colour}">{name}</text>')
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    sys.stdout.write(drawn({name: points(Path(file)) for name, file in given.items()}))
