"""Power cuts: in mode ``host`` nothing acknowledged is lost; in mode ``process`` it is, and this test can tell."""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path

import pytest

from perdure.store.base import StoreOptions
from perdure.store.sqlite import SqliteStore
from tests.faults.disk import STRACE, Call, Disk, calls
from tests.house.tree import ROOT
from tests.process import Spawner

PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}

WORK = """
import os, sys
from pathlib import Path
from perdure.store.base import StoreOptions
from perdure.store.sqlite import SqliteStore
from perdure.testing.author import Author
store = SqliteStore(Path(sys.argv[1]), StoreOptions(durability=sys.argv[2]))
store.open()
store._opened().writer.wal_autocheckpoint(int(sys.argv[3]))
authors = []
for n in range(int(sys.argv[4])):
    author = Author(f"run-{n}", store.now())
    authors.append(author)
    batch = [author.create(), author.claimed()] + [one.step(b"x" * 700, events=2) for one in authors[-3:]]
    if n % 5 == 4:
        batch += [authors[n - 4].completed(), authors[n - 4].purge()]
    assert all(not outcome for outcome in store.commit(batch))
    os.write(1, b"ack %d\\n" % n)
store.close()
os.write(1, b"ack closed\\n")
"""


def trace(spawn: Spawner, folder: Path, mode: str, *, checkpoint: int, commits: int) -> list[Call]:
    """Make a file, then work on it under strace."""
    log = folder.parent / f"{folder.name}.strace"
    argv = (sys.executable, "-c", WORK, folder / "runs.db", mode, str(checkpoint), str(commits))
    child = spawn(*STRACE, "-o", log, *argv, env=PATHS)
    result = child.finish(60)
    assert result.code == 0, result.err
    return list(calls(log.read_text("ascii")))


def base(folder: Path) -> Disk:
    folder.mkdir()
    store = SqliteStore(folder / "runs.db", StoreOptions())
    store.open()
    store.close()
    return Disk(folder, {"runs.db": (folder / "runs.db").read_bytes()})


def survivors(folder: Path, acked: int) -> list[int]:
    """Open what is left and return which acknowledged commits are whole; anything half done is an error."""
    store = SqliteStore(folder / "runs.db", StoreOptions())
    store.open()
    assert store.problems() == []
    found = []
    for n in range(acked):
        log = store.load(f"run-{n}")
        if store.get(f"run-{n}") is not None:
            found.append(n)
            assert len(log) >= 4 or n % 5 == 0, "a part of a transaction"
    store.close()
    return found


def cut_everywhere(
    disk: Disk, trace: list[Call], scratch: Path, luck: random.Random | None
) -> list[tuple[int, list[int]]]:
    """Cut the power after each acknowledgement; return (acknowledged, survived) of each cut."""
    outcomes = []
    acked = 0
    for call in trace:
        if call.name != "ack":
            disk.apply(call)
            continue
        if call.data.startswith(b"ack "):
            acked += call.data != b"ack closed\n"
            scratch.mkdir()
            disk.cut(scratch, luck)
            outcomes.append((acked, survivors(scratch, acked)))
            shutil.rmtree(scratch)
    return outcomes


@pytest.mark.parametrize("checkpoint", [1000, 12], ids=["no checkpoint", "checkpoints"])
def test_a_power_cut_loses_nothing_that_was_acknowledged(tmp_path: Path, spawn: Spawner, checkpoint: int) -> None:
    disk = base(tmp_path / "data")
    log = trace(spawn, tmp_path / "data", "host", checkpoint=checkpoint, commits=15)
    seed = random.randrange(2**32)
    for luck in (None, random.Random(seed), random.Random(seed + 1)):
        copy = Disk(disk.folder, dict(disk.safe))
        outcomes = cut_everywhere(copy, log, tmp_path / "scratch", luck)
        assert len(outcomes) == 16
        for acked, found in outcomes:
            assert found == list(range(acked)), f"seed {seed}"
    if checkpoint < 1000:
        assert sum(call.name == "sync" and call.path.endswith("runs.db") for call in log) > 2, "no checkpoint was seen"


def test_mode_process_is_seen_to_lose_at_a_power_cut(tmp_path: Path, spawn: Spawner) -> None:
    disk = base(tmp_path / "data")
    log = trace(spawn, tmp_path / "data", "process", checkpoint=1000, commits=12)
    outcomes = cut_everywhere(disk, log, tmp_path / "scratch", None)
    lost = [acked - len(found) for acked, found in outcomes[:-1]]
    assert lost == list(range(1, 13)), "this test would not notice a loss"
    assert outcomes[-1][1] == list(range(12)), "closing in good order syncs"


def test_mode_process_keeps_whole_transactions_at_a_power_cut(tmp_path: Path, spawn: Spawner) -> None:
    disk = base(tmp_path / "data")
    log = trace(spawn, tmp_path / "data", "process", checkpoint=12, commits=15)
    seed = random.randrange(2**32)
    outcomes = cut_everywhere(disk, log, tmp_path / "scratch", random.Random(seed))
    for _, found in outcomes:
        assert found == list(range(len(found))), f"seed {seed}: not the first ones, but some"
