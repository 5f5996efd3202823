"""Errors of the disk, one at a time: what was acknowledged is there, what was refused is not, and work goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from perdure.store.base import StoreOptions
from perdure.store.sqlite import SqliteStore
from tests.house.tree import ROOT
from tests.process import Spawner

PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}

WORK = """
import os, sys
from perdure.errors import StoreUnavailable, PerdureError
from perdure.store.base import StoreOptions, open_store
from perdure.testing.author import Author
def say(*words): os.write(1, (" ".join(map(str, words)) + "\\n").encode())
store = open_store(f"sqlite:///{sys.argv[1]}", StoreOptions())
try:
    store.open()
except PerdureError as error:
    say("closed", type(error).__name__)
    sys.exit(0)
store.inner._opened().writer.wal_autocheckpoint(6)
say("open")
for n in range(8):
    author = Author(f"run-{n}", store.now())
    batch = [author.create(), author.claimed(), author.step(b"x" * 3000, events=2)]
    for attempt in range(2):
        try:
            outcomes = store.commit(batch)
        except StoreUnavailable as error:
            say("unknown" if error.unknown else "refused", n)
        else:
            say("ack" if not any(outcomes) else "odd", n)
            break
    try:
        store.load(f"run-{n}")
    except StoreUnavailable:
        say("unreadable", n)
try:
    store.close()
except PerdureError as error:
    say("close failed", type(error).__name__)
say("end")
"""


@dataclass
class Story:
    """What the process said, and what the file holds."""

    said: list[str]
    code: int
    found: set[int]
    problems: list[str]

    def numbers(self, word: str) -> list[int]:
        return [int(line.split()[1]) for line in self.said if line.startswith(f"{word} ")]


def run(spawn: Spawner, path: Path, injected: str) -> Story:
    """Work on a file while strace lets one system call of a kind fail, then look at the file."""
    call = injected.split(":", 1)[0]
    argv = (sys.executable, "-c", WORK, path)
    # With the filter strace stops at the traced call only, which is faster; but then it does not send signals.
    quick = ("--seccomp-bpf",) if "error=" in injected else ()
    log = path.with_suffix(".strace")
    strace = ("strace", "-f", *quick, "-qq", "-o", log, "-e", f"trace={call}", "-e", f"inject={injected}")
    result = spawn(*strace, *argv, env=PATHS).finish(30)
    store = SqliteStore(path, StoreOptions())
    store.open()
    found = {n for n in range(8) if len(store.load(f"run-{n}")) == 4}
    partial = {n for n in range(8) if 0 < len(store.load(f"run-{n}")) < 4}
    assert not partial
    problems = store.problems()
    store.close()
    return Story(result.out.splitlines(), result.code, found, problems)


def check(story: Story) -> None:
    assert story.problems == []
    assert set(story.numbers("ack")) <= story.found, "an acknowledged commit is gone"
    unsure = set(story.numbers("unknown"))
    acked = set(story.numbers("ack"))
    refused = set(story.numbers("refused")) - acked - unsure
    assert not refused & story.found, "a commit that was said not to be there is there"
    assert not story.numbers("odd")


ERRORS = [
    *[f"fdatasync:error=EIO:when={n}" for n in (1, 2, 3, 6)],
    *[f"pwrite64:error=EIO:when={n}" for n in (3, 7, 20, 54)],
    *[f"pwrite64:error=ENOSPC:when={n}" for n in (4, 12, 33, 88)],
    "pwrite64:error=ENOSPC:when=30..40",
    "fdatasync:error=ENOSPC:when=4",
    "fdatasync:error=EIO:when=4..6",
    "ftruncate:error=EIO:when=1",
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    store = SqliteStore(tmp_path / "runs.db", StoreOptions())
    store.open()
    store.close()
    return tmp_path / "runs.db"


@pytest.mark.parametrize("injected", ERRORS)
def test_an_error_of_the_disk_loses_nothing_and_work_goes_on(path: Path, spawn: Spawner, injected: str) -> None:
    story = run(spawn, path, injected)
    assert story.code == 0
    check(story)
    assert "INJECTED" in path.with_suffix(".strace").read_text("ascii", "replace"), "nothing was injected"
    if "open" in story.said:
        assert "end" in story.said
        assert story.numbers("ack")[-2:] == [6, 7], "it does not recover"


@pytest.mark.parametrize("number", [3, 9, 26, 70])
def test_a_process_killed_at_any_write_loses_nothing(path: Path, spawn: Spawner, number: int) -> None:
    story = run(spawn, path, f"pwrite64:signal=KILL:when={number}")
    assert story.code != 0
    check(story)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "kind", ["fdatasync:error=EIO", "pwrite64:error=EIO", "pwrite64:error=ENOSPC", "pwrite64:signal=KILL"]
)
def test_every_single_call_may_fail(tmp_path: Path, spawn: Spawner, kind: str) -> None:
    number = 0
    while True:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        store = SqliteStore(folder / "runs.db", StoreOptions())
        store.open()
        store.close()
        story = run(spawn, folder / "runs.db", f"{kind}:when={number}")
        check(story)
        if story.code == 0 and "INJECTED" not in (folder / "runs.strace").read_text("ascii", "replace"):
            break
        shutil.rmtree(folder)
    assert number > 20


FILL = """
import os, sys
from pathlib import Path
from perdure.errors import StoreUnavailable
from perdure.store.base import StoreOptions, open_store
from perdure.testing.author import Author
folder = Path(sys.argv[1])
ballast = folder / "ballast"
ballast.write_bytes(bytes(300_000))
store = open_store(f"sqlite:///{folder / 'runs.db'}", StoreOptions())
store.open()
acked, full = [], 0
n = 0
while full < 3:
    author = Author(f"run-{n}", store.now())
    try:
        assert not any(store.commit([author.create(), author.claimed(), author.step(bytes(20_000))]))
        acked.append(n)
        n += 1
    except StoreUnavailable as error:
        assert "disk is full" in str(error), error
        assert not error.unknown
        full += 1
assert store.get(f"run-{n}") is None
assert all(len(store.load(f"run-{k}")) == 3 for k in acked)
ballast.unlink()
author = Author(f"run-{n}", store.now())
assert not any(store.commit([author.create(), author.claimed(), author.step(bytes(20_000))]))
store.close()
store.open()
assert all(len(store.load(f"run-{k}")) == 3 for k in [*acked, n])
assert store.inner.problems() == []
store.close()
print("kept", len(acked))
"""

NEW_ON_FULL = """
import sys
from pathlib import Path
from perdure.errors import StoreUnavailable
from perdure.store.base import StoreOptions, open_store
folder = Path(sys.argv[1])
(folder / "ballast").write_bytes(bytes(900_000))
with (folder / "rest").open("wb", buffering=0) as rest:
    try:
        while True:
            rest.write(bytes(4096))
    except OSError:
        pass
before = sorted(path.name for path in folder.iterdir())
try:
    open_store(f"sqlite:///{folder / 'runs.db'}", StoreOptions()).open()
except StoreUnavailable as error:
    print("refused", error)
assert sorted(path.name for path in folder.iterdir()) == before, list(folder.iterdir())
"""


def small_disk(spawn: Spawner, folder: Path, code: str) -> str:
    """Run code on a file system of one megabyte."""
    folder.mkdir()
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system does not let tests mount a small file system; the injected ENOSPC stands for it")
    mount = f'mount -t tmpfs -o size=1m tmpfs "{folder}" && exec "$@"'
    result = spawn("unshare", "-m", "sh", "-c", mount, "sh", sys.executable, "-c", code, folder, env=PATHS).finish(30)
    assert result.code == 0, result.err
    return result.out


def test_a_full_disk_loses_nothing_and_work_goes_on_when_there_is_space(tmp_path: Path, spawn: Spawner) -> None:
    assert int(small_disk(spawn, tmp_path / "disk", FILL).split()[1]) > 5


def test_a_new_file_on_a_full_disk_leaves_nothing_behind(tmp_path: Path, spawn: Spawner) -> None:
    assert "the disk is full" in small_disk(spawn, tmp_path / "disk", NEW_ON_FULL)
