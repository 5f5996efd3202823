"""A cache keeps within its size, and takes nothing from under a process."""

from __future__ import annotations

import os
import time
from pathlib import Path

from perdure.runtime.hosts.cache import hold, trim
from tests.process import Spawner

HOLDER = """
import sys, time
from pathlib import Path
from perdure.runtime.hosts.cache import hold
hold(Path(sys.argv[1]), sys.argv[2])
print("held", flush=True)
time.sleep(60)
"""


def release(cache: Path, name: str, used_at: float) -> Path:
    """Make a release of 1,000 bytes that was used at a time."""
    tree = cache / name / "shop"
    tree.mkdir(parents=True)
    (tree / "flow.py").write_bytes(b"#" * 1000)
    lock = cache / f".{name}.lock"
    lock.touch()
    os.utime(lock, (used_at, used_at))
    return cache / name


def left(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


def size_of(tree: Path) -> int:
    return sum(path.lstat().st_size for path in tree.rglob("*"))


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    trees = [release(tmp_path, name, 1000.0 - age) for age, name in enumerate("cab")]
    each = size_of(trees[0])
    trim(tmp_path, 3 * each)
    assert left(tmp_path) == ["a", "b", "c"]
    trim(tmp_path, 2 * each)
    assert left(tmp_path) == ["a", "c"]
    trim(tmp_path, 0)
    assert left(tmp_path) == []


def test_what_a_process_runs_from_stays_until_it_ends(tmp_path: Path, spawn: Spawner) -> None:
    release(tmp_path, "old", 1.0)
    release(tmp_path, "new", 2.0)
    child = spawn.python(HOLDER, str(tmp_path), "old")
    child.expect("held")
    trim(tmp_path, 0)
    assert left(tmp_path) == ["old"]
    child.destroy()
    trim(tmp_path, 0)
    assert left(tmp_path) == []


def test_to_hold_a_release_is_to_use_it(tmp_path: Path) -> None:
    release(tmp_path, "a", 1.0)
    tree = release(tmp_path, "b", 2.0)
    hold(tmp_path, "a")
    assert (tmp_path / ".a.lock").stat().st_mtime > time.time() - 60
    trim(tmp_path, size_of(tree))
    assert left(tmp_path) == ["a"]


def test_leftovers_of_unpacking_go_after_an_hour(tmp_path: Path) -> None:
    for name, age in ((".unpacking-old", 4000), (".unpacking-new", 10), (".removed-old", 4000)):
        (tmp_path / name / "shop").mkdir(parents=True)
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    trim(tmp_path)
    assert left(tmp_path) == [".unpacking-new"]


def test_a_file_with_several_names_counts_for_each_with_its_share(tmp_path: Path) -> None:
    """As files of environments do: they are links into the cache of the program that installs them."""
    trees = [release(tmp_path, name, age) for age, name in enumerate("abc")]
    each = size_of(trees[0])
    for tree in trees[1:]:
        (tree / "shop" / "flow.py").unlink()
        (tree / "shop" / "flow.py").hardlink_to(trees[0] / "shop" / "flow.py")
    trim(tmp_path, 3 * each - 2000)  # what is on the disk
    assert left(tmp_path) == ["a", "b", "c"]
    trim(tmp_path, 2 * each - 1000)  # without one of them the others' shares are larger
    assert left(tmp_path) == ["b", "c"]
    trim(tmp_path, 2 * each - 1001)
    assert left(tmp_path) == ["c"]
