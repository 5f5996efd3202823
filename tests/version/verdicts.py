"""Run as a program in a project's folder: record a run of `order`, or replay one with the code that is here."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path

import perdure
from perdure.testing import replay

ALL = 8
"""Operations of a run that has ended."""


async def record(recorded: int) -> str:
    """Return the history of a run of which so many operations are recorded."""
    order = importlib.import_module("shop.flow").order
    async with perdure.Engine("sqlite://", [order]) as engine:
        run = await engine.start(order, "tea", 3, id="o-1")
        if recorded == ALL:
            await run.result()
            return (await run.recording()).dump()
        while True:
            history = await run.recording()
            if sum(event.type == "step_completed" for event in history.events) == recorded:
                return history.dump()
            await asyncio.sleep(0.01)


def main() -> None:
    sys.path[:0] = [str(Path.cwd()), str(Path.cwd() / "site-packages")]
    what, file, extra = sys.argv[1:]
    if what == "record":
        Path(file).write_text(asyncio.run(record(int(extra))))
        return
    module, _, name = extra.partition(":")
    verdict = replay(file, getattr(importlib.import_module(module), name))
    print(f"{verdict.kind.value} {verdict.at}")
    print(verdict, file=sys.stderr)


if __name__ == "__main__":
    main()
