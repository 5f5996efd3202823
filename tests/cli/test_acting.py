"""``cancel``, ``retry``, ``purge``: what an operator does is done, and is in the log with who and why."""

from __future__ import annotations

import getpass
from typing import Any

import msgspec

from tests.cli.conftest import FLOWS, Shell


def started(shell: Shell, name: str, run_id: str, *words: object) -> None:
    assert shell("start", f"{FLOWS}:{name}", "--id", run_id, *words).code == 0


def events(shell: Shell, run_id: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in shell("history", run_id, "--json").out.splitlines()]


def test_a_cancel_is_in_the_log_with_actor_and_reason(shell: Shell) -> None:
    started(shell, "add", "a", "--input", "1")
    told = shell("cancel", "a", "--actor", "ann", "--reason", "a mistake")
    assert (told.code, told.out) == (0, "run a: asked to stop\n")
    last = events(shell, "a")[-1]
    assert (last["type"], last["detail"]["actor"], last["detail"]["reason"]) == ("run_cancelled", "ann", "a mistake")
    assert "ann" in shell("history", "a").out
    assert "a mistake" in shell("list").out
    assert "a mistake" in shell("show", "a").out
    again = shell("cancel", "a")
    assert (again.code, again.out) == (0, "run a: had ended before, cancelled\n")
    assert shell("run", f"{FLOWS}:add", "--input", "1", "--id", "a").code == 1


def test_the_actor_is_the_system_user_by_default(shell: Shell) -> None:
    started(shell, "add", "a", "--input", "1")
    assert shell("cancel", "a").code == 0
    assert events(shell, "a")[-1]["detail"]["actor"] == getpass.getuser()


def test_a_retry_keeps_completed_steps_and_repeats_the_failed_one(shell: Shell) -> None:
    file = shell.folder / "wanted"
    call = ("run", f"{FLOWS}:repaired", "--arg", f"file={file}", "--id", "r")
    assert shell(*call).code == 1
    file.touch()
    told = shell("retry", "r", "--actor", "ann", "--reason", "file is there")
    assert told.code == 0
    assert "step 'fail_until' is tried again" in told.out
    assert shell(*call).value == "1 x a, found"
    log = events(shell, "r")
    assert [one["name"] for one in log if one["type"] == "step_completed"] == ["pack", "fail_until"]
    (reopened,) = [one for one in log if one["type"] == "run_reopened"]
    assert (reopened["detail"]["actor"], reopened["detail"]["reason"]) == ("ann", "file is there")


def test_a_parked_run_can_be_retried(shell: Shell) -> None:
    assert shell("run", f"{FLOWS}:stuck", "--id", "s").code == 3
    assert shell("retry", "s", "--actor", "ann").code == 0
    assert events(shell, "s")[-1]["detail"]["actor"] == "ann"


def test_what_has_not_failed_cannot_be_retried(shell: Shell) -> None:
    started(shell, "add", "a", "--input", "1")
    told = shell("retry", "a")
    assert told.code == 2
    assert "run 'a' is pending; only a failed or parked run can be retried" in told.err


def test_a_purge_takes_the_history_and_keeps_the_id(shell: Shell) -> None:
    call = ("run", f"{FLOWS}:add", "--input", "1", "--id", "a")
    assert shell(*call).code == 0
    assert shell("purge", "a", "--actor", "ann", "--reason", "old").code == 0
    shown = shell("show", "a")
    assert shown.code == 0
    assert "purged by ann: old" in shown.out
    assert shell("history", "a").code == 2
    repeated = shell(*call)
    assert repeated.code == 2
    assert "the history of run 'a' was purged; it was completed" in repeated.err
    assert shell("run", f"{FLOWS}:add", "--input", "2", "--id", "a").code == 2


def test_a_run_that_goes_on_cannot_be_purged(shell: Shell) -> None:
    started(shell, "add", "a", "--input", "1")
    told = shell("purge", "a")
    assert told.code == 2
    assert "cancel it first" in told.err


def test_every_run_named_is_acted_on_whatever_happens_to_the_others(shell: Shell) -> None:
    assert shell("run", f"{FLOWS}:add", "--input", "1", "--id", "done").code == 0
    started(shell, "add", "a", "--input", "1")
    told = shell("cancel", "nobody", "done", "a", "a")
    assert told.code == 2
    assert told.out.splitlines() == ["run done: had ended before, completed", "run a: asked to stop"]
    assert told.err.startswith("error: no run has the id 'nobody'")
    assert shell("cancel", "done").code == 1
