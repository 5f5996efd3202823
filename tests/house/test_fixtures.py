"""Show that the checks every test is under find what they look for, and that the process helpers keep their word."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from tests.house.tree import ROOT
from tests.process import Finished, Spawner, Unprivileged

LEAKS = {
    "thread": (
        "import threading\ndef test_it():\n    threading.Thread(target=threading.Event().wait, daemon=True).start()\n",
        "threads left behind",
    ),
    "task": (
        "import asyncio\nasync def test_it():\n    global task\n    task = asyncio.create_task(asyncio.sleep(60))\n",
        "tasks left behind",
    ),
    "task of a fixture": (
        (
            "import asyncio, pytest\n@pytest.fixture\nasync def it(): yield asyncio.create_task(asyncio.sleep(60))\n"
            "async def test_it(it): ...\n"
        ),
        "tasks left behind",
    ),
    "warning": ("import warnings\ndef test_it():\n    warnings.warn('old')\n", "UserWarning: old"),
    "coroutine": ("async def f(): ...\ndef test_it():\n    f()\n", "never awaited"),
    "marker": ("import pytest\n@pytest.mark.unknown\ndef test_it(): ...\n", "'unknown' not found"),
    "unexpected pass": ("import pytest\n@pytest.mark.xfail\ndef test_it(): ...\n", "XPASS(strict)"),
}

CLEAN = """
import asyncio, threading
def test_thread_that_ends():
    threading.Thread(target=lambda: None).start()
async def test_work_in_a_thread():
    await asyncio.to_thread(lambda: None)
async def test_task_that_is_cancelled():
    asyncio.create_task(asyncio.sleep(60)).cancel()
def test_own_loop():
    asyncio.run(asyncio.sleep(0))
"""


def run_pytest(spawn: Spawner, folder: Path, text: str) -> Finished:
    (folder / "test_inner.py").write_text("from __future__ import annotations\n" + text)
    argv = (sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest")
    plain = ("-p", "no:cacheprovider", "-p", "no:xdist", str(folder / "test_inner.py"))
    return spawn(*argv, *plain, env={"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}, folder=ROOT).finish()


@pytest.mark.parametrize("text,complaint", LEAKS.values(), ids=LEAKS)
def test_a_leak_fails_the_test(spawn: Spawner, tmp_path: Path, text: str, complaint: str) -> None:
    result = run_pytest(spawn, tmp_path, text)
    assert result.code == 1 or complaint == "'unknown' not found"
    assert result.code
    assert complaint in result.out


def test_clean_tests_pass(spawn: Spawner, tmp_path: Path) -> None:
    result = run_pytest(spawn, tmp_path, CLEAN)
    assert result.code == 0, result.out
    assert "4 passed" in result.out


def test_a_failure_shows_what_the_server_logged(spawn: Spawner, tmp_path: Path) -> None:
    result = run_pytest(spawn, tmp_path, "def test_it(servers):\n    servers.postgres().execute('select nothing')\n")
    assert result.code == 1
    assert 'ERROR:  column "nothing" does not exist' in result.out.partition("stdout of Postgres")[2]


def test_a_child_is_heard_and_its_end_is_seen(spawn: Spawner) -> None:
    child = spawn.python("import sys; print('one'); print('two'); print('oh', file=sys.stderr); sys.exit(3)")
    assert child.expect("tw") == "two"
    assert child.finish() == Finished(code=3, out="one\ntwo\n", err="oh\n")


def test_a_child_that_says_something_else_fails_with_its_words(spawn: Spawner) -> None:
    child = spawn.python("import sys; print('one'); print('oh', file=sys.stderr)")
    with pytest.raises(AssertionError, match=r"(?s)never printed 'two'.*one.*oh"):
        child.expect("two")


@pytest.mark.serial
def test_waiting_for_a_child_is_bounded(spawn: Spawner) -> None:
    child = spawn.python("import time; print('ready'); time.sleep(60)")
    child.expect("ready")
    with pytest.raises(AssertionError, match="did not end in time"):
        child.finish(within=0.05)
    child.send(signal.SIGTERM)
    assert child.finish().code == -signal.SIGTERM


@pytest.mark.serial
def test_nothing_outlives_the_spawner(tmp_path: Path) -> None:
    spawner = Spawner(tmp_path)
    grandchild = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; print(1); time.sleep(60)'])"
    )
    child = spawner.python("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + grandchild)
    # The write end of this pipe is held by child and grandchild alone: it closes when both are gone.
    child.expect("1")
    pipe = os.dup(child._pipe().fileno())
    spawner.close()
    reader = threading.Thread(target=os.read, args=(pipe, 1))
    reader.start()
    reader.join(5)
    alive = reader.is_alive()
    os.close(pipe)
    assert not alive
    assert child.process.returncode == -signal.SIGKILL


def test_a_read_only_folder_binds_an_unprivileged_process(unprivileged: Unprivileged) -> None:
    code = "import sys; open(sys.argv[1], 'w').close(); print('written')"
    assert unprivileged(sys.executable, "-c", code, "file").finish().out == "written\n"
    unprivileged.folder.chmod(0o555)
    refused = unprivileged(sys.executable, "-c", code, "other").finish()
    assert refused.code == 1
    assert "Permission" in refused.err


def test_an_unprivileged_process_is_not_root(unprivileged: Unprivileged) -> None:
    assert unprivileged(sys.executable, "-c", "import os; print(os.geteuid() > 0)").finish().out == "True\n"


def test_an_unprivileged_process_finds_the_package(unprivileged: Unprivileged) -> None:
    assert unprivileged(sys.executable, "-c", "import perdure; print('found')").finish().out == "found\n"


def test_tmp_db_does_not_exist_yet(tmp_db: str, tmp_path: Path) -> None:
    assert tmp_db == f"sqlite:///{tmp_path}/test.db"
    assert not list(tmp_path.iterdir())
