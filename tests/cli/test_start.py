"""``perdure start``: runs for workers elsewhere, by target or by bare name."""

from __future__ import annotations

import signal

import pytest

from tests.cli.conftest import FLOWS, Shell


def test_the_id_is_printed_and_the_run_is_there(shell: Shell) -> None:
    told = shell("start", f"{FLOWS}:add", "--input", "1", "--tag", "k=v", "--priority", "3", "--delay", "1h")
    assert told.code == 0
    shown = shell("show", told.out.strip(), "--json").value
    assert isinstance(shown, dict)
    assert shown["run"]["tags"] == {"k": "v"}
    assert shown["run"]["priority"] == 3
    assert [wait["kind"] for wait in shown["waits_for"]] == ["time"]


@pytest.mark.parametrize("text", ['[{"sku": "a", "count": 2}]', '{"order": {"count": 2, "sku": "a"}}'])
def test_a_bare_name_and_then_a_target_mean_the_same_run(shell: Shell, text: str) -> None:
    for what in ("fulfil", "fulfil", f"{FLOWS}:fulfil"):
        told = shell("start", what, "--input", text, "--id", "o")
        assert (told.code, told.out) == (0, "o\n")
    assert shell("run", f"{FLOWS}:fulfil", "--input", text, "--id", "o").value == {"parcel": "2 x a"}


def test_what_cannot_be_compared_is_refused_never_attached(shell: Shell) -> None:
    assert shell("start", f"{FLOWS}:add", "--input", "[1]", "--id", "a").code == 0
    told = shell("start", "add", "--input", "[1]", "--id", "a")
    assert told.code == 2
    assert "another input" in told.err


@pytest.mark.parametrize("text", ["[2, 40]", "5", '{"left": 2, "right": 40}', '{"right": 40, "left": 2}'])
def test_conflicts_are_seen_between_a_name_and_a_target(shell: Shell, text: str) -> None:
    assert shell("start", "add", "--input", text, "--id", "a").code == 0
    assert shell("start", "add", "--input", text, "--id", "a").code == 0
    assert shell("start", f"{FLOWS}:add", "--input", text, "--id", "a").code == 0
    assert shell("start", f"{FLOWS}:add", "--input", "[2, 41]", "--id", "a").code == 2
    assert shell("start", "boom", "--input", text, "--id", "a").code == 2
    assert shell("start", f"{FLOWS}:add", "--input", text, "--id", "b").code == 0
    assert shell("start", "add", "--input", text, "--id", "b").code == (0 if text.startswith("{") else 2)
    assert shell("run", f"{FLOWS}:add", "--input", text, "--id", "a").value in (42, 6)


def test_the_order_of_named_arguments_does_not_matter(shell: Shell) -> None:
    assert shell("start", "add", "--input", '{"left": 2, "right": 40}', "--id", "a").code == 0
    assert shell("start", "add", "--input", '{"right": 40, "left": 2}', "--id", "a").code == 0


def test_arguments_that_do_not_fit_park_the_run_with_a_reason(shell: Shell) -> None:
    assert shell("start", "add", "--input", "[1, 2, 3]", "--id", "a").code == 0
    worker = shell.process("worker", FLOWS)
    assert shell("start", "add", "--input", "[1, 2, 3]", "--id", "a", "--wait").code == 3
    worker.send(signal.SIGTERM)
    assert worker.finish().code == 0
    assert "takes at most 2 positional arguments" in shell("show", "a").out


def test_wait_prints_the_result(shell: Shell) -> None:
    worker = shell.process("worker", FLOWS)
    told = shell("start", "add", "--input", "[20, 22]", "--wait")
    assert (told.code, told.out) == (0, "42\n")
    worker.send(signal.SIGTERM)
    assert worker.finish().code == 0


def test_case_ux_04(shell: Shell) -> None:
    """UX-04: a second start with the same key shows the id of the first, wherever an id is shown.

    Source: restatedev/restate#1635.
    """
    call = (f"{FLOWS}:add", "--input", "1", "--id", "key")
    first = shell("start", *call, "--json").value
    second = shell("start", *call, "--json").value
    assert first == second
    assert isinstance(second, dict)
    assert second["id"] == "key"
    assert shell("start", *call).out == "key\n"
    assert shell("run", *call).err.splitlines()[-1] == "run key"
    assert shell("show", "key").code == 0
    assert len(shell("list", "--json").out.splitlines()) == 1


def test_case_ux_05(shell: Shell) -> None:
    """UX-05: an argument that cannot be stored is refused at the call, before anything is stored, by name and path.

    Source: dbos-inc/dbos-transact-py#435. On the command line every argument is JSON; what cannot be stored is one
    that its annotation does not take.
    """
    told = shell("start", f"{FLOWS}:fulfil", "--input", '[{"sku": "a", "count": {"lock": 1}}]')
    assert told.code == 2
    assert "fulfil: argument 'order'" in told.err
    assert "$.count" in told.err
    assert not list(shell.folder.iterdir())


def test_case_ux_07(shell: Shell) -> None:
    """UX-07: work for a queue or workflow nobody serves is reported at the start and by doctor, with its age.

    Source: lawrenceli0228/animego PR#177.
    """
    worker = shell.process("worker", FLOWS, "--queue", "email")
    assert shell("start", "add", "--input", "1", "--queue", "email", "--wait").code == 0
    assert "warning" not in shell("start", "add", "--input", "1", "--queue", "email").err
    told = shell("start", "add", "--input", "1", "--queue", "emial")
    assert told.code == 0
    assert "warning: no live worker takes workflow 'add' from queue 'emial'" in told.err
    told = shell("start", "no_such", "--queue", "email")
    assert "warning: no live worker takes workflow 'no_such' from queue 'email'" in told.err
    found = shell("doctor")
    assert found.code == 1
    assert "workflow 'add' from queue 'emial': 1 due, the oldest for" in found.out
    assert "workflow 'no_such' from queue 'email': 1 due, the oldest for" in found.out
    assert "from queue 'email': 1 due" in found.out.replace("'no_such' ", "")
    unserved = shell("doctor", "--json").value
    assert isinstance(unserved, dict)
    assert {(one["queue"], one["workflow"]) for one in unserved["health"]["unserved"]} == {
        ("emial", "add"), ("email", "no_such"),
    }  # fmt: skip
    worker.send(signal.SIGTERM)
    assert worker.finish().code == 0
