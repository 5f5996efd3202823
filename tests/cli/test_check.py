"""``check``, ``history --export`` and ``worker --check``: recorded runs beside changed code."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from threading import Event

import msgspec
import pytest

from perdure.testing import load_histories
from tests.cli.conftest import Shell
from tests.process import Child

CODE = """
import asyncio, perdure

@perdure.step
async def take(item: str) -> str:
    print("taken", flush=True)
    return item

@perdure.step
async def send(item: str) -> str:
    return item

@perdure.workflow
async def order(item: str, pause: float = 0.0) -> str:
    {first}
    await asyncio.sleep(pause)
    return await send(item)
"""


@pytest.fixture
def code(shell: Shell) -> Path:
    """Give code whose run ``o-1`` has ended."""
    file = shell.folder / "shop.py"
    file.write_text(CODE.format(first="await take(item)"))
    assert shell.process("run", f"{file}:order", "--arg", "item=tea", "--id", "o-1").finish().code == 0
    return file


def change(file: Path, first: str) -> None:
    file.write_text(CODE.format(first=first))
    later = file.stat().st_mtime + 2  # what was compiled within the same second would be taken for this
    os.utime(file, (later, later))


def check(shell: Shell, *words: object) -> tuple[int, list[str], str]:
    told = shell.process("check", *words).finish()
    return told.code, told.out.splitlines(), told.err


def until_it_says(process: Child, text: str) -> None:
    deadline = time.monotonic() + 15
    while text not in process.err:
        assert time.monotonic() < deadline, process.err
        Event().wait(0.05)


def test_unchanged_code_fits(shell: Shell, code: Path) -> None:
    assert check(shell, "--code", code, "o-1") == (
        0, ["o-1 (order): SAFE: next: the run completes"], "1 checked, 0 found\n"
    )  # fmt: skip


def test_a_change_is_found_and_told_in_a_line_each(shell: Shell, code: Path) -> None:
    assert shell.process("start", f"{code}:order", "--arg", "item=tea", "--id", "o-2").finish().code == 0
    change(code, "await send(item)")
    exit_code, lines, err = check(shell, "--code", code, "--workflow", "order", "--sample", "5")
    assert exit_code == 1
    assert lines[0] == "o-2 (order): SAFE: next: the body begins"
    assert lines[1].startswith("o-1 (order): DIVERGES at 0: recorded step 'take' (event 3, step_completed); ")
    assert lines[1].endswith("the code asks for step 'send'")
    assert err == "2 checked, 1 found\n"
    assert check(shell, "--code", code, "--workflow", "order", "--status", "pending", "--processes", "0")[0] == 0


def test_json_is_an_object_a_line(shell: Shell, code: Path) -> None:
    change(code, "await take(item + item)")
    exit_code, lines, err = check(shell, "--code", f"{code}:order", "o-1", "--json", "--processes", "0")
    (found,) = [msgspec.json.decode(line) for line in lines]
    assert (exit_code, err) == (1, "")
    assert (found["run_id"], found["kind"], found["at"]) == ("o-1", "SAFE_ARGS_DIFFER", "0")
    assert found["text"].startswith("o-1 (order): SAFE_ARGS_DIFFER at 0: ")
    assert check(shell, "--code", code, "o-1", "--accept", "args-differ", "--processes", "0")[0] == 0


def test_wrong_usage_and_unknown_runs(shell: Shell, code: Path) -> None:
    assert check(shell, "--code", code)[0] == 2
    assert check(shell, "--code", code, "o-1", "--workflow", "order")[0] == 2
    exit_code, lines, err = check(shell, "--code", code, "o-9", "o-1", "--processes", "0")
    assert exit_code == 2
    assert len(lines) == 1
    assert "no run has the id 'o-9'" in err


def test_export_writes_a_history_file(shell: Shell, code: Path) -> None:
    file = shell.folder / "o-1.jsonl"
    assert shell("history", "o-1", "--export", file).code == 0
    (history,) = load_histories(file)
    assert (history.run_id, history.workflow) == ("o-1", "order")
    assert shell("history", "o-1", "--export", "-").out == file.read_text()
    assert shell("history", "o-9", "--export", file).code == 2


def test_a_worker_says_at_its_start_which_live_runs_its_code_does_not_fit(shell: Shell, code: Path) -> None:
    started = shell.process("start", f"{code}:order", "--arg", "item=tea", "--arg", "pause=600", "--id", "o-2")
    assert started.finish().code == 0
    worker = shell.process("worker", f"{code}:order")
    worker.expect("taken")
    worker.send(signal.SIGTERM)
    assert worker.finish().code == 0
    change(code, "await send(item)")
    again = shell.process("worker", f"{code}:order", "--check", "10")
    until_it_says(again, "is ready")
    again.send(signal.SIGTERM)
    told = again.finish()
    assert "this code does not fit run o-2 (order): DIVERGES at 0" in told.err
    assert "checked 1 live runs against this code: it can carry on 0" in told.err
