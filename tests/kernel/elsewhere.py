"""Run by another interpreter: record every program into a folder, or replay what is there and say what came out.

``elsewhere.py record FOLDER`` or ``elsewhere.py replay FOLDER``; the report is JSON on standard output.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

import perdure
from perdure.model.event import Event
from tests.kernel import group_programs, programs, sync_programs
from tests.kernel.outside import Outside
from tests.kernel.replay import whole
from tests.kernel.steps import add, plus
from tests.kernel.world import World, result


@perdure.workflow
async def by_version() -> int:
    """Here the code itself depends on the Python version, which no engine can hide."""
    if sys.version_info >= (3, 12):
        return await add(1, 1)
    return await plus.aio(1, 1)


PROGRAMS: dict[str, perdure.Workflow[..., Any]] = {
    **programs.EVERY, **group_programs.EVERY, **sync_programs.EVERY, "by_version": by_version,
}  # fmt: skip
SEEDS = (0, 1)
READER = msgspec.msgpack.Decoder(list[Event])


def seen(world: World, upto: int) -> Any:
    views = {seq: view for seq, view in world.snapshots.items() if seq <= upto}
    return json.loads(json.dumps([result(world.log[-1]), sorted(views.items()), world.log[-1].type], default=repr))


def record(folder: Path) -> None:
    for name, program in PROGRAMS.items():
        for seed in SEEDS:
            world = World(program, seed=seed, run_id=f"{name}-{seed}")
            world.execute()
            log = whole(world)
            (folder / f"{name}.{seed}.log").write_bytes(msgspec.msgpack.encode(log))
            (folder / f"{name}.{seed}.seen").write_text(json.dumps(seen(world, len(log))))


def replay(folder: Path) -> dict[str, str]:
    wrong: dict[str, str] = {}
    for name, program in PROGRAMS.items():
        for seed in SEEDS:
            log = READER.decode((folder / f"{name}.{seed}.log").read_bytes())
            world = World(program, run_id=f"{name}-{seed}", outside=Outside(-1))
            world.execute(log)
            expected = json.loads((folder / f"{name}.{seed}.seen").read_text())
            found = seen(world, len(log))
            if found != expected:
                wrong[f"{name}.{seed}"] = f"{found[0]} for {expected[0]}, calls {dict(world.outside.calls)}"
    return wrong


def main() -> None:
    verb, folder = sys.argv[1], Path(sys.argv[2])
    report: dict[str, str] = {}
    if verb == "record":
        record(folder)
    else:
        report = replay(folder)
    print(json.dumps({"python": f"{sys.version_info.major}.{sys.version_info.minor}", "wrong": report}))


if __name__ == "__main__":
    main()
