"""One figure in a process of its own. Started as ``python -m perdure.bench.child FIGURE FOLDER LOAD URL``."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import msgspec

from perdure.bench import long, measure, workers
from perdure.bench.claims import claims
from perdure.bench.figure import Figure
from perdure.bench.measure import Place
from perdure.bench.process import end_with_parent
from perdure.bench.site import open_site
from perdure.bench.workload import Load

IN_ROUNDS = {
    "machine": measure.machine, "steps": measure.steps, "sync": measure.sync, "sequence": measure.sequence,
    "latency": measure.latency, "starts": measure.starts, "workers": workers.workers,
}  # fmt: skip
LONG = {
    "doomed": long.doomed, "recovery": long.recovery, "lull": long.lull, "idle": long.idle, "claims": claims,
}  # fmt: skip


async def take(figure: str, folder: Path, load: Load, url: str = "sqlite:") -> list[Figure]:
    """Take one figure here and now."""
    site = open_site(url, folder)
    if figure in IN_ROUNDS:
        return await IN_ROUNDS[figure](Place(site, load))
    return await LONG[figure](site, load)


def main(figure: str, folder: str, load: str, url: str) -> None:
    """Take one figure and print it as JSON."""
    found = asyncio.run(take(figure, Path(folder), msgspec.json.decode(load, type=Load), url))
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    main(*sys.argv[1:])
