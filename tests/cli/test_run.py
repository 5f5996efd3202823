"""``perdure run``: one run, executed here, resumed or repeated by its id."""

from __future__ import annotations

import os
import pty
import signal
import sys

import pytest

from tests.cli.conftest import FLOWS, Shell


def test_the_result_is_json_on_standard_output(shell: Shell) -> None:
    told = shell("run", f"{FLOWS}:fulfil", "--input", '{"order": {"sku": "pen", "count": 3}}', "--id", "o-1")
    assert told.code == 0
    assert told.out == '{"parcel":"3 x pen"}\n'
    assert told.err == "run o-1\n"


@pytest.mark.parametrize(
    "words,result",
    [
        (["--input", '{"left": 1}'], 2),
        (["--input", "[1, 2]"], 3),
        (["--input", "7"], 8),
        (["--arg", "left=1", "--arg", "right=5"], 6),
    ],
)
def test_arguments_by_name_in_order_or_alone(shell: Shell, words: list[str], result: int) -> None:
    assert shell("run", f"{FLOWS}:add", *words).value == result


def test_arguments_from_standard_input(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"[20, 22]")
    os.close(writing)
    with os.fdopen(reading) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert shell("run", f"{FLOWS}:add", "--input", "-").value == 42


def test_arguments_may_have_the_names_of_options(shell: Shell) -> None:
    told = shell("run", f"{FLOWS}:clashing", "--input", '{"id": "theirs", "queue": "q"}', "--id", "ours")
    assert told.value == "0 theirs q"
    assert told.err == "run ours\n"


def test_text_stays_text_where_text_is_asked_for(shell: Shell) -> None:
    assert shell("run", f"{FLOWS}:clashing", "--arg", "a=5", "--arg", "id=5").value == "5 5 "


def test_the_same_id_again_prints_the_recorded_result(shell: Shell) -> None:
    file = shell.folder / "notes"
    call = ("run", f"{FLOWS}:noting", "--arg", f"file={file}", "--arg", "line=x", "--id", "n")
    first = shell(*call)
    again = shell(*call)
    assert (again.code, again.out.splitlines()) == (0, ['"x"'])
    assert first.out.splitlines()[-1] == '"x"'
    assert file.read_text() == "x\n"


def test_the_same_id_with_other_arguments_is_refused(shell: Shell) -> None:
    assert shell("run", f"{FLOWS}:add", "--input", "1", "--id", "a").code == 0
    told = shell("run", f"{FLOWS}:add", "--input", "2", "--id", "a")
    assert told.code == 2
    assert told.err.startswith("error: run id 'a' belongs to a run of 'add' with another input")


def test_a_failed_run_is_exit_code_1_with_type_message_and_traceback(shell: Shell) -> None:
    told = shell("run", f"{FLOWS}:boom", "--id", "b")
    assert told.code == 1
    assert told.out == ""
    assert "flows.py" in told.err
    assert "in boom" in told.err
    assert told.err.splitlines()[-1] == "error: run 'b' failed: ValueError: boom"


def test_a_result_that_cannot_be_stored_fails_the_run_and_names_path_and_type(shell: Shell) -> None:
    told = shell("run", f"{FLOWS}:lock", "--id", "l")
    assert told.code == 1
    assert "$['opts']['lock']" in told.err
    assert "_thread.lock" in told.err


def test_a_parked_run_is_exit_code_3_and_says_what_helps(shell: Shell) -> None:
    told = shell("run", f"{FLOWS}:stuck", "--id", "s")
    assert told.code == 3
    assert "is parked" in told.err.splitlines()[-1]
    assert "perdure upgrade plan --id s" in told.err
    shown = shell("show", "s")
    assert "waits for  a person" in shown.out


def test_a_run_over_its_time_limit_is_exit_code_1(shell: Shell) -> None:
    told = shell("run", f"{FLOWS}:sleeper", "--timeout", "50ms")
    assert told.code == 1
    assert "timed out" in told.err


def test_only_this_run_is_executed(shell: Shell) -> None:
    """Other due runs of the same workflow and queue are left to workers; but a run of any queue can be taken by id."""
    assert shell("start", f"{FLOWS}:add", "--input", "1", "--id", "other").code == 0
    assert shell("start", f"{FLOWS}:add", "--input", "2", "--id", "this", "--queue", "far").code == 0
    assert shell("run", f"{FLOWS}:add", "--input", "2", "--id", "this").value == 3
    assert '"status":"pending"' in shell("list", "--json", "--queue", "default").out
    assert shell("show", "other", "--json").out.count('"status":"pending"') == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_hands_the_run_back_and_the_same_id_goes_on(shell: Shell, number: signal.Signals) -> None:
    file = shell.folder / "notes"
    call = ("run", f"{FLOWS}:noting", "--arg", f"file={file}", "--arg", "line=x", "--arg", "pause=0.4", "--id", "n")
    child = shell.process(*call)
    child.expect("began x")
    child.send(number)
    told = child.finish()
    assert told.code == 130
    assert "interrupted; go on with: perdure run" in told.err
    assert "--id n" in told.err
    # The step in flight was allowed to finish, so it is recorded and not tried again.
    assert shell(*call).value == "x"
    assert file.read_text() == "x\n"


def test_a_killed_run_goes_on_where_it_was(shell: Shell) -> None:
    call = ("run", f"{FLOWS}:holding", "--arg", "seconds=0.3", "--id", "h", "--lease", "1s")
    child = shell.process(*call)
    child.expect("holding")
    child.send(signal.SIGKILL)
    child.finish()
    told = shell(*call)
    assert told.code == 0
    assert told.out.splitlines()[-1] == '"held"'
    claims = [line for line in shell("history", "h").out.splitlines() if "run_claimed" in line]
    assert len(claims) == 2


def test_progress_is_drawn_on_a_terminal_only(shell: Shell) -> None:
    primary, secondary = pty.openpty()
    try:
        words = (sys.executable, "-m", "perdure", "run", f"{FLOWS}:fulfil", "--input", '[{"sku": "a"}]')
        actions = [(os.POSIX_SPAWN_DUP2, secondary, 2)]
        pid = os.posix_spawn(sys.executable, words, os.environ, file_actions=actions)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        shown = os.read(primary, 65536)
    finally:
        os.close(primary)
        os.close(secondary)
    assert b"\r\x1b[K" in shown
