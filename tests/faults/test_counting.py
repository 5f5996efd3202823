"""The boundaries that are tested are those a process really has: counted once by the wrapper, once by the kernel."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.process import Spawner

MARK = "/perdure-mark"
TRACED = """
import asyncio, os, sys, threading
from tests.faults import lives
from perdure.store.base import StoreOptions
from perdure.store.sqlite.engine import SqliteStore

class Counting(lives.Mortal):
    changed = 0
    alone = threading.RLock()
    def change_count(self):
        with self.alone:
            return super().change_count()
    def _cross(self, name, function, *args, **kwargs):
        with self.alone:
            writer = self.inner._session.writer
            before = writer.total_changes()
            try:
                return super()._cross(name, function, *args, **kwargs)
            finally:
                self.changed += writer.total_changes() != before

async def main():
    store = Counting(SqliteStore(lives.Path(sys.argv[1]), StoreOptions(durability="host")))
    async with lives.engine_on(store) as engine:
        await engine.run(lives.programs.plain, 0)
        store.trace.clear()
        store.changed = 0
        os.access(sys.argv[2], os.F_OK)
        await engine.run(lives.programs.plain, 1)
        os.access(sys.argv[2], os.F_OK)
        print("boundaries", store.boundaries, "changed", store.changed, flush=True)

asyncio.run(main())
"""


@pytest.mark.serial
def test_every_boundary_that_writes_is_one_sync_of_the_log(
    spawn: Spawner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strace = shutil.which("strace")
    assert strace, "strace is missing: apt-get install strace"
    log = tmp_path / "trace"
    calls = "trace=fsync,fdatasync,access,faccessat,faccessat2"
    child = spawn(
        strace, "-f", "-y", "-o", log, "-e", calls, sys.executable, "-c", TRACED, tmp_path / "test.db", MARK,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    words = child.expect("boundaries", within=40).split()
    child.finish()
    boundaries, changed = int(words[1]), int(words[3])
    _, inside, _ = log.read_text().split(MARK)
    syncs = len(re.findall(r"f(?:data)?sync\(\d+<[^>]*-wal>", inside))
    with capsys.disabled():
        print(f"\n{boundaries} boundaries, {changed} of them wrote; the kernel saw {syncs} syncs of the log", end="")
    assert changed == syncs
    assert changed >= 8
