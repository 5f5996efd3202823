"""Fixtures every test may use, and the checks every test is under."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from perdure.version import closure, locate, survey, tree
from tests.process import Spawner, Unprivileged
from tests.servers.server import place

pytest_plugins = ["tests.servers.fixtures"]
# Before any test imports them.
pytest.register_assert_rewrite("perdure.testing.conformance", "perdure.testing.author")

gc.disable()  # until all tests are collected: all that is made is kept

# How long what a test started may take to end after the test.
GRACE_S = 2.0

settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile(
    "nightly", deadline=None, print_blob=True, max_examples=5000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")


# Thousands of tests register these very tests as the code of their workflows, each in a database of its own.
for _module, _name in ((survey, "make_blob"), (closure, "scan")):
    setattr(_module, _name, lru_cache(maxsize=4096)(getattr(_module, _name)))


@lru_cache
def _own_files(root: locate.Root) -> tuple[tree.SourceFile, ...]:
    return tuple(_files_of(root))


_files_of = tree.files_of
_TESTS = (Path(__file__).parent,)
tree.files_of = lambda root: iter(_own_files(root)) if root.folders == _TESTS else _files_of(root)


def pytest_configure(config: pytest.Config) -> None:
    """Keep files of tests that run side by side in memory, as those of servers: a busy disk makes all of them wait.

    Tests that run alone, storms among them, stay on the disk.
    """
    memory = place()
    if config.getoption("numprocesses", None) and memory is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--store", default="sqlite", help="kind of database of `tmp_db`: sqlite, postgres, ...")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what looks into SQLite's own tables, clock or file, if the command line names another store.

    What may take longer than usual is not among the last: all others would wait for its end.
    """
    half, late = len(items) // 2, len(items) * 9 // 10
    long = [item for item in items[late:] if item.get_closest_marker("timeout")]
    items[:] = [*items[:half], *long, *items[half:late], *(item for item in items[late:] if item not in long)]
    if config.getoption("--store") != "sqlite":
        left_out = [item for item in items if item.get_closest_marker("sqlite_only")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """Keep what was made so far, thousands of tests, out of each collection from here on."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def tmp_db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the URL of an empty store: an SQLite file, unless the command line names another store."""
    kind: str = request.config.getoption("--store")
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / 'test.db'}"
    url: str = request.getfixturevalue("new_store")(kind).url
    return url


@pytest.fixture
def spawn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spawner]:
    """Give a starter of processes. Every one of them is killed, by its id, at the end of the test."""
    spawner = Spawner(tmp_path_factory.mktemp("spawn"))
    try:
        yield spawner
    finally:
        spawner.close()


@pytest.fixture
def unprivileged(spawn: Spawner) -> Iterator[Unprivileged]:
    """Give a starter of processes that a read-only folder binds, and a folder they own."""
    lowered = Unprivileged(spawn)
    try:
        yield lowered
    finally:
        spawn.close()
        lowered.close()


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    """Fail a test that leaves a thread behind."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + GRACE_S
    leaked = [thread for thread in threading.enumerate() if thread not in before]
    for thread in leaked:
        thread.join(max(0.0, deadline - time.monotonic()))
    left = [thread.name for thread in leaked if thread.is_alive()]
    assert not left, f"threads left behind: {', '.join(left)}"


@pytest.fixture(autouse=True)
def no_leaked_tasks(request: pytest.FixtureRequest, no_leaked_threads: None) -> None:
    """Fail an async test that leaves a task behind. Set up before the loop, so that it looks before the loop closes."""
    if request.node.get_closest_marker("asyncio"):
        request.getfixturevalue("task_check")


@pytest.fixture
async def task_check() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    for _ in range(10):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, f"tasks left behind: {', '.join(sorted(map(repr, left)))}"
