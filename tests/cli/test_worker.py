"""``perdure worker``: it stops in good order, in time, and never ends as if all were well when it is not."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from threading import Event

import pytest

from tests.cli.conftest import FLOWS, Shell
from tests.process import Child
from tests.servers.fixtures import Servers
from tests.servers.server import free_port

BREAK = """
from perdure.store.sqlite.engine import SqliteStore
def broken(*args, **more):
    raise ZeroDivisionError('driver')
SqliteStore.{} = broken
"""
BREAKS = {
    "the driver fails": (BREAK.format("commit"), "the store failed: ZeroDivisionError: driver"),
    "the heartbeat fails": (BREAK.format("heartbeat"), "the heartbeat has ended"),
    "a step calls exit": ("import sys\n", "user code called sys.exit(0)"),
}
LEAVES = """
import perdure
@perdure.step
async def leave() -> None:
    if "sys" in globals():
        sys.exit(0)
@perdure.workflow
async def leaving() -> None:
    await leave()
    await perdure.sleep(60)
"""


def until(child: Child, text: str) -> str:
    """Wait until the log of a process holds a text; give the log."""
    deadline = time.monotonic() + 10
    while text not in (told := child.err):
        assert time.monotonic() < deadline, told
        assert child.process.poll() is None, told
        Event().wait(0.02)
    return told


def expect_both(child: Child) -> None:
    """Wait until both steps of the test below have begun, in whichever order."""
    line = child.expect("")
    child.expect("holding" if "stubborn" in line else "stubborn")


def start(shell: Shell, name: str, run_id: str, *words: object) -> None:
    assert shell("start", name, "--id", run_id, *words).code == 0


def stop(*children: Child) -> None:
    for child in children:
        child.send(signal.SIGTERM)
    assert [child.finish().code for child in children] == [0] * len(children)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_line_at_the_start_one_at_the_end_and_exit_code_0(shell: Shell, number: signal.Signals) -> None:
    worker = shell.process("worker", f"{FLOWS}:add", "--queue", "a", "--queue", "b", "--name", "w\u202e1")
    until(worker, "is ready")
    worker.send(number)
    told = worker.finish()
    assert told.code == 0
    assert told.out == ""
    first, last = told.err.splitlines()
    assert f"worker w\\u202e1 is ready: {shell.db}, queues a,b, workflows add" in first
    assert f"worker w\\u202e1 has stopped ({number.name})" in last


def test_the_log_level_can_be_chosen(shell: Shell) -> None:
    worker = shell.process("worker", FLOWS, "--log-level", "error")
    start(shell, "add", "a", "--input", "1")
    assert shell("start", "add", "--id", "a", "--input", "1", "--wait").value == 2
    worker.send(signal.SIGTERM)
    assert worker.finish().err == ""


def test_at_the_end_it_is_logged_how_much_of_the_database_was_known(shell: Shell) -> None:
    worker = shell.process("worker", FLOWS, "--log-level", "debug")
    until(worker, "is ready")
    assert shell("start", "add", "--id", "a", "--input", "1", "--wait").value == 2
    worker.send(signal.SIGTERM)
    (told,) = [line for line in worker.finish().err.splitlines() if "known here" in line]
    assert re.search(r"ends of logs \d+\.\d% of [1-9]\d*; definitions never wanted$", told), told


def test_two_targets_that_share_a_name_are_refused(shell: Shell) -> None:
    body = "import perdure\n@perdure.workflow\nasync def same() -> None: ...\n"
    for name in ("one.py", "two.py"):
        (shell.folder / name).write_text(body)
    told = shell("worker", "one.py", "two.py")
    assert told.code == 2
    assert "two workflows are named 'same': one.same and two.same" in told.err
    assert not (shell.folder / "runs.db").exists()


def test_steps_in_flight_are_recorded_within_the_grace(shell: Shell) -> None:
    file = shell.folder / "notes"
    worker = shell.process("worker", FLOWS)
    start(shell, "noting", "n", "--arg", f"file={file}", "--arg", "line=x", "--arg", "pause=0.4")
    worker.expect("began x")
    stop(worker)
    told = shell("history", "n")
    assert "step_completed" in told.out
    assert file.read_text() == "x\n"


def elsewhere(shell: Shell, *words: str) -> Child:
    return shell.process("worker", FLOWS, "--route", "not*=slow", *words)


def test_steps_are_executed_by_the_worker_of_the_queue_that_a_route_names(shell: Shell) -> None:
    file = shell.folder / "notes"
    caller, slow = elsewhere(shell), elsewhere(shell, "--queue", "slow", "--name", "the slow one")
    start(shell, "noting", "n", "--arg", f"file={file}", "--arg", "line=x", "--wait")
    assert file.read_text() == "x\n"
    slow.expect("began x")
    told = json.loads(shell("list", "--tag", "perdure.run=n", "--json").out)
    assert (told["id"], told["queue"], told["status"]) == ("n:0", "slow", "completed")
    assert told["tags"] == {"perdure.run": "n", "perdure.step": "note"}
    stop(caller, slow)


def test_a_run_that_waits_for_a_step_elsewhere_says_so_and_takes_it_along_when_it_is_cancelled(shell: Shell) -> None:
    caller = elsewhere(shell)
    start(shell, "noting", "n", "--arg", "file=f", "--arg", "line=x")
    until_shown(shell, "n", "executed by run n:0 on queue slow")
    assert shell("cancel", "n", "--actor", "me", "--reason", "no more").code == 0
    until_shown(shell, "n", "cancelled")
    slow = elsewhere(shell, "--queue", "slow")
    until_shown(shell, "n:0", "its caller gave the step up")
    stop(caller, slow)
    assert shell("verify").code == 0


def until_shown(shell: Shell, run_id: str, text: str) -> None:
    """Wait until ``perdure show`` of a run says something."""
    deadline = time.monotonic() + 20
    while text not in (told := shell("show", run_id)).out:
        assert time.monotonic() < deadline, told
        Event().wait(0.05)


@pytest.mark.serial
def test_case_shu_02(shell: Shell) -> None:
    """SHU-02: a step that ignores cancellation and a thread that cannot be stopped do not hold the process up.

    Source: riverqueue/river#78. The exit code is 0: a stop was asked for, and it was in good order.
    """
    words = ("worker", FLOWS, "--grace", "1s", "--lease", "2s")
    first = shell.process(*words)
    start(shell, "holding", "h")
    start(shell, "never", "n")
    expect_both(first)
    first.send(signal.SIGTERM)
    began = time.monotonic()
    assert first.finish().code == 0
    assert 0.9 < time.monotonic() - began < 10
    second = shell.process(*words)
    expect_both(second)
    stop(second)


@pytest.mark.serial
def test_case_shu_03(shell: Shell) -> None:
    """SHU-03: an interrupted run is handed back, starts elsewhere long before the lease ends, and loses no attempt.

    Source: PrefectHQ/prefect PR#23016, PrefectHQ/prefect#16746.
    """
    words = ("worker", FLOWS, "--grace", "300ms", "--lease", "60s")
    first = shell.process(*words)
    start(shell, "holding", "h", "--arg", "seconds=30")
    first.expect("holding")
    second = shell.process(*words)
    until(second, "is ready")
    first.send(signal.SIGTERM)
    second.expect("holding")
    assert first.finish().code == 0
    assert "step_attempt_failed" not in shell("history", "h").out
    second.send(signal.SIGTERM)
    assert second.finish().code == 0
    assert "run_failed" not in shell("history", "h").out


@pytest.mark.serial
@pytest.mark.parametrize("number,most", [(signal.SIGTERM, 1), (signal.SIGKILL, 2)])
def test_case_shu_05(shell: Shell, number: signal.Signals, most: int) -> None:
    """SHU-05: work that a process has taken and not begun is not lost with it.

    Source: celery/kombu#1836.
    """
    words = ("worker", FLOWS, "--concurrency", "1", "--lease", "1s")
    file = shell.folder / "notes"
    ids = [f"r{number}" for number in range(12)]
    for run_id in ids:
        given = ("--arg", f"file={file}", "--arg", f"line={run_id}", "--arg", "pause=0.1")
        start(shell, "noting", run_id, *given)
    first = shell.process(*words)
    for _ in range(4):
        first.expect("began")
    first.send(number)
    first.finish()
    second = shell.process(*words)
    second.expect("began")
    for run_id in ids:
        given = ("--arg", f"file={file}", "--arg", f"line={run_id}", "--arg", "pause=0.1")
        assert shell("start", "noting", "--id", run_id, *given, "--wait").value == run_id
    stop(second)
    assert shell("verify").code == 0
    counts = [file.read_text().splitlines().count(run_id) for run_id in ids]
    assert min(counts) == 1
    assert max(counts) <= most
    assert sum(counts) <= len(ids) + (most - 1)


@pytest.mark.serial
@pytest.mark.parametrize("text,complaint", BREAKS.values(), ids=BREAKS)
def test_case_shu_06(shell: Shell, text: str, complaint: str) -> None:
    """SHU-06: an engine that cannot go on ends its process within seconds, and never with exit code 0.

    Source: Bogdanp/dramatiq#376. There are no child processes, so what is left of it is the engine itself.
    """
    start(shell, "leaving", "l")
    (shell.folder / "code.py").write_text(text + LEAVES)
    worker = shell.process("worker", "code.py", "--lease", "1s")
    told = worker.finish()
    assert told.code == 1
    assert complaint in told.err.splitlines()[-1], told.err


@pytest.mark.serial
@pytest.mark.parametrize("pause", [0.5, 0.0])
def test_case_shu_07(shell: Shell, pause: float) -> None:
    """SHU-07: a second signal ends the process at once, and no run needs a person afterwards.

    Source: procrastinate-org/procrastinate PR#366. Signals within 0.2 s of each other are one: a terminal sends them to
    the whole group, and whoever started the process may pass its own on.
    """
    words = ("worker", FLOWS, "--lease", "1s", "--grace", "1s")
    first = shell.process(*words)
    start(shell, "holding", "h", "--arg", "seconds=30")
    first.expect("holding")
    first.send(signal.SIGINT)
    began = time.monotonic()
    Event().wait(pause)
    first.send(signal.SIGINT)
    assert first.finish().code == (130 if pause else 0)
    assert time.monotonic() - began < 10
    second = shell.process(*words)
    second.expect("holding")
    stop(second)
    assert shell("verify").code == 0


def test_a_body_that_blocks_the_loop_cannot_keep_the_process_alive(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "spins.py").write_text(
        "import os, perdure\n@perdure.workflow\nasync def spin() -> None:\n    os.write(1, b'spinning\\n')\n"
        "    while True: pass\n"
    )
    start(shell, "spin", "s")
    worker = shell.process("worker", "spins.py", "--grace", "0s")
    worker.expect("spinning")
    worker.send(signal.SIGTERM)
    Event().wait(0.3)
    worker.send(signal.SIGTERM)
    assert worker.finish().code == 130


def test_case_sec_05(shell: Shell) -> None:
    """SEC-05: no password of a URL anywhere; no argument in the log from level info on.

    Source: lykinsbd/naas#8; rhesis-ai/rhesis PR#1405; noetl/noetl PR#601; cdrx/faktory_worker_python PR#8.
    """
    secret, argument = "p%40ss-CANARY1", "CANARY2"
    urls = [
        f"postgresql://me:{secret}@db.example/x", f"sqlite://me:{secret}@host/x.db", f"sqlite:///x.db?password={secret}",
        f"nothing://me:{secret}@host", f"me:{secret}@host", f"sqlite://me:{secret}@[::1/x", f"sqlite:///x.db#{secret}",
    ]  # fmt: skip
    for url in urls:
        for words in (["list"], ["doctor"], ["worker", FLOWS, "--log-level", "debug"], ["migrate"]):
            if url is urls[0] and "worker" in words:
                continue  # it waits
            told = shell(*words, "--db", url)
            assert told.code == 2
            assert "CANARY1" not in told.out + told.err
    waiting = shell.process("worker", FLOWS, "--log-level", "debug", "--db", urls[0])
    assert "CANARY1" not in until(waiting, "waiting for the database")
    stop(waiting)
    assert "CANARY1" not in waiting.err
    helped = shell.process("list", "--help", env={"PERDURE_DB": urls[0]}).finish()
    assert "CANARY1" not in helped.out + helped.err
    worker = shell.process("worker", FLOWS)
    for name, run_id, *more in (
        ("boom", "fails", "--arg", f"text={argument}"),
        ("clashing", "succeeds", "--arg", f"id={argument}"),
        ("retrying", "times-out", "--arg", f"why={argument}", "--timeout", "200ms"),
    ):
        shell("start", name, "--id", run_id, *more, "--wait")
    worker.send(signal.SIGTERM)
    assert argument not in worker.finish().err


@pytest.mark.parametrize("kind", ["mariadb", "postgres"])
def test_a_wrong_url_is_not_waited_for(shell: Shell, servers: Servers, kind: str) -> None:
    """A database that is away is; one that is there and refuses the user, or has no such database, is not."""
    server = servers.start(kind, password="secret")
    for wrong in (
        server.url("nowhere"), server.url().replace(":secret@", ":wrong@"), server.url().replace(":secret@", "@"),
        server.url().replace("://perdure", "://nobody"),
    ):  # fmt: skip
        done = shell.process("worker", FLOWS, "--db", wrong).finish()
        assert done.code == 2, done.err
        assert len(done.err.splitlines()) == 1
        assert "check user, password" in done.err or "create database" in done.err


def test_a_worker_that_waits_for_its_database_can_be_stopped(shell: Shell) -> None:
    worker = shell.process("worker", FLOWS, "--db", f"postgresql://nobody@127.0.0.1:{free_port()}/runs")
    until(worker, "waiting for the database")
    worker.send(signal.SIGTERM)
    done = worker.finish()
    assert done.code == 0
    assert len(done.err.splitlines()) == 2
    assert "stopped before the database was there" in done.err
