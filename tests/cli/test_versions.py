"""`perdure versions`, `routes`, `rollback`, `gc`, and what other commands show of versions."""

from __future__ import annotations

import re
import signal
import time
import zlib
from pathlib import Path
from threading import Event
from typing import Any

import apsw
import msgspec
import pytest

from tests.cli.conftest import Shell
from tests.process import PATIENCE_S, Child

FLOW = """
import perdure

@perdure.step
async def charge(x: int) -> int:
    return x

@perdure.step
async def ship(x: int) -> int:
    return x

@perdure.workflow(name="order", version="{semver}")
async def order(x: int = 1) -> str:
    total = await charge(x)
    {more}
    return "{mark}"
"""


def deploy(shell: Shell, mark: str, semver: str, more: str = "pass") -> str:
    """Write a version of the code and return the target; each in a folder of its own, as on machines of their own."""
    folder = shell.folder / f"{mark}-{semver}"
    folder.mkdir(exist_ok=True)
    file = folder / "flow.py"
    file.write_text(FLOW.format(mark=mark, semver=semver, more=more))
    return str(file)


def publish(shell: Shell, mark: str, semver: str, more: str = "pass", *words: str) -> dict[str, Any]:
    """Publish by a process of its own: one process has one `flow`."""
    target = deploy(shell, mark, semver, more)
    ended = shell.process("versions", "publish", target, "--json", *words).finish()
    assert ended.code == 0, ended.err
    return msgspec.json.decode(ended.out, type=dict[str, Any])


def lines(text: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line, type=dict[str, Any]) for line in text.splitlines()]


def says(child: Child, text: str) -> None:
    """Wait until a process writes a text to its log."""
    deadline = time.monotonic() + PATIENCE_S
    while text not in child.err:
        assert time.monotonic() < deadline, child.err
        assert child.process.poll() is None, child.err
        Event().wait(0.02)


def test_versions_are_published_shown_and_compared(shell: Shell) -> None:
    first = publish(shell, "v1", "1.0.0")
    second = publish(shell, "v2", "1.1.0", "await ship(x)", "--reason", "shipping", "--actor", "ana")
    assert (first["label"], first["action"], second["label"]) == ("1.0.0", "version", "1.1.0")
    newest, oldest = lines(shell("versions", "list", "order", "--json").out)
    assert (newest["label"], newest["is_newest"], newest["share"], oldest["share"]) == ("1.1.0", True, 1.0, 0.0)
    table = shell("versions", "list").out
    assert re.search(r"order +1\.1\.0 +[0-9a-f]{8} +active +100% .* ana", table)

    shown = shell("versions", "show", "order@1.1.0").out
    assert second["sha256"] in shown
    assert "flow:order" in shown
    assert shell("versions", "show", f"order@{second['sha256'][:8]}", "--json").value

    row, _ = lines(shell("versions", "log", "order", "--json").out)
    assert (row["action"], row["actor"], row["reason"], row["label"]) == ("published", "ana", "shipping", "1.1.0")
    assert re.search(r"ana +published +1\.1\.0 +shipping +flow\.py", shell("versions", "log", "order").out)

    told = shell("versions", "diff", "order").out
    assert told.startswith("order: 1.0.0 > 1.1.0\nchanged  flow.py\n")
    assert "+    await ship(x)" in told
    assert "ship" not in shell("versions", "diff", "order", "1.0.0", "1.1.0", "--files").out

    assert "flow.py" in shell("versions", "source", "order@1.0.0").out
    source = shell("versions", "source", "order@1.0.0", "flow.py").out
    assert source == Path(deploy(shell, "v1", "1.0.0")).read_text()
    assert shell("versions", "verify", "order@1.0.0").out.endswith("1 files: as it was registered\n")


def test_an_altered_file_is_found_and_its_source_is_not_shown(shell: Shell) -> None:
    publish(shell, "v1", "1.0.0")
    connection = apsw.Connection(shell.db.removeprefix("sqlite:///"))
    for trigger in [row[0] for row in connection.execute("select name from sqlite_schema where type = 'trigger'")]:
        connection.execute(f"drop trigger {trigger}")
    connection.execute("update definition_blob set data = ?", (zlib.compress(b"import os"),))
    connection.close()
    told = shell("versions", "verify", "order@1.0.0")
    assert told.code == 1
    assert re.fullmatch(
        r"order@1\.0\.0: flow\.py does not match [0-9a-f]{8}; the stored source was altered\. Nothing was run\.",
        told.out.splitlines()[0],
    )
    assert lines(shell("versions", "verify", "order@1.0.0", "--json").out)[0]["problems"]
    refused = shell("versions", "source", "order@1.0.0", "flow.py")
    assert (refused.code, refused.out) == (2, "")
    assert "the stored source was altered" in refused.err


def test_a_change_without_a_new_number_fails_the_check(shell: Shell) -> None:
    publish(shell, "v1", "1.0.0")
    same = shell.process("versions", "check", deploy(shell, "v1", "1.0.0")).finish()
    assert (same.code, same.out) == (0, "order: 1.0.0; the same as 1.0.0\n")
    for mark, more, level, number in (
        ("v2", "pass", "patch", "1.0.1"), ("v1", "await ship(x)", "minor", "1.1.0"),
    ):  # fmt: skip
        changed = shell.process("versions", "check", deploy(shell, mark, "1.0.0", more)).finish()
        assert changed.code == 1
        assert re.fullmatch(
            r"order 1\.0\.0 is already published with other content \(flow\.py differs\)\. Bump the version, or set "
            r'on_unbumped="auto" to publish 1\.0\.0\+[0-9a-f]{8}\. '
            rf"It is a {level} change of 1\.0\.0, so at least {re.escape(number)}\.\n",
            changed.out,
        )
    bumped = shell.process("versions", "check", deploy(shell, "v2", "1.0.1"), "--json").finish()
    assert bumped.code == 0
    assert lines(bumped.out)[0]["proposed"] == "1.0.1"
    refused = shell.process("versions", "publish", deploy(shell, "v3", "1.0.0"), "--on-unbumped", "refuse").finish()
    assert (refused.code, refused.out) == (1, "")
    assert "Bump the version" in refused.err
    worker = shell.process("worker", deploy(shell, "v3", "1.0.0"), "--on-unbumped", "refuse").finish()
    assert worker.code == 1


def test_new_runs_are_divided_promoted_and_rolled_back(shell: Shell) -> None:
    publish(shell, "v1", "1.0.0")
    publish(shell, "v2", "2.0.0")
    assert shell("routes", "show", "order").out == "new runs of order start on the newest, 2.0.0\n"
    told = shell("routes", "set", "order", "2.0.0=5", "1.0.0=95", "--reason", "canary")
    assert told.out == "order, channel default: 2.0.0 5%, 1.0.0 95%\n"
    (route,) = lines(shell("routes", "show", "order", "--json").out)
    assert [(arm["label"], arm["share"]) for arm in route["arms"]] == [("2.0.0", 0.05), ("1.0.0", 0.95)]
    assert re.search(r"default +1 +2\.0\.0 +5 +5%", shell("routes", "show", "order").out)
    assert shell("start", "order", "--id", "a").code == 0
    assert re.search(r"^order@\S+ \([0-9a-f]{8}, active\): route default revision 1, arm [01]\n",
                     shell("versions", "of", "a").out)  # fmt: skip
    assert shell("routes", "promote", "order", "--reason", "good").out == "order, channel default: the newest\n"
    assert shell("start", "order", "--id", "b").code == 0
    assert "it was the newest" in shell("versions", "of", "b").out
    back = shell("rollback", "order", "--reason", "double charge")
    assert re.fullmatch(
        r"order@2\.0\.0 \([0-9a-f]{8}\) is withdrawn; new runs start on 1\.0\.0 \([0-9a-f]{8}\)\n", back.out
    )
    assert shell("versions", "restore", "order@2.0.0", "--reason", "it was not").out.endswith(": active\n")
    shell("routes", "set", "order", "2.0.0=1", "--channel", "beta", "--reason", "some")
    warned = shell("versions", "withdraw", "order@2.0.0", "--reason", "again")
    assert "warning: the route of channel beta still leads to it; see perdure routes show order" in warned.err
    refused = shell("versions", "close", "order@2.0.0", "--reason", "done")
    assert refused.code == 2
    assert "the route of channel 'beta' leads to it" in refused.err
    assert shell("routes", "clear", "order", "--channel", "beta", "--reason", "done").code == 0
    assert shell("versions", "close", "order@2.0.0", "--reason", "done").out.endswith(": closed\n")
    dry = shell("gc", "versions", "--closed-for", "0s", "--keep", "0", "--dry-run")
    assert dry.out == "0 versions and 0 files, 0 bytes, would be removed\n"  # run b is bound to it


@pytest.mark.parametrize(
    "words",
    [
        ["versions", "withdraw", "order@1.0.0"], ["versions", "restore", "order@1.0.0"],
        ["versions", "close", "order@1.0.0"], ["routes", "set", "order", "1.0.0=1"], ["routes", "promote", "order"],
        ["routes", "clear", "order"],
    ],
)  # fmt: skip
def test_who_changes_something_says_why(shell: Shell, words: list[str]) -> None:
    told = shell(*words)
    assert (told.code, told.out) == (2, "")
    assert "Missing option '--reason'" in told.err


@pytest.mark.parametrize(
    "words, text",
    [
        (["versions", "show", "order"], "'order' is not of the form WORKFLOW@VERSION, such as order@1.3.0"),
        (["versions", "show", "order@3.0.0"], "order has no version 3.0.0. Newest: 1.0.0. Known: 1.0.0."),
        (["versions", "source", "order@1.0.0", "x.py"], "order@1.0.0 has no file x.py."),
        (["versions", "diff", "order"], "order has one version only, 1.0.0"),
        (["versions", "diff", "other"], "other has no version. None is published."),
        (["versions", "of", "nobody"], "nobody"),
        (["routes", "set", "order", "1.0.0=x", "--reason", "r"], "1.0.0=x: the weight must be a number"),
        (["routes", "set", "order", "1.0.0=1", "1.0.0=2", "--reason", "r"], "1.0.0 is given twice"),
        (["routes", "set", "order", "1.0.0=0", "--reason", "r"], "a route needs an arm with a weight above 0"),
        (["routes", "set", "other", "1.0.0=1", "--reason", "r"], "other has no version. None is published."),
        (["rollback", "order", "--reason", "r"], "order has no version before 1.0.0 that new runs could start on."),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(shell: Shell, words: list[str], text: str) -> None:
    publish(shell, "v1", "1.0.0")
    told = shell(*words)
    assert (told.code, told.out) == (2, "")
    assert text in told.err


def test_listings_show_versions_and_the_doctor_shows_what_keeps_them(shell: Shell) -> None:
    first = publish(shell, "v1", "1.0.0")
    publish(shell, "v2", "1.1.0")
    shell("start", "order", "--id", "a", "--version", "1.0.0")
    shell("start", "order", "--id", "b")
    assert re.search(r"^a +order +1\.0\.0 +pending", shell("list").out, re.MULTILINE)
    for version in ("1.0.0", first["sha256"][:8]):
        assert [run["id"] for run in lines(shell("list", "--version", version, "--json").out)] == ["a"]
    assert re.search(r"version +order@1\.0\.0 \([0-9a-f]{8}, active\): it was asked for", shell("show", "a").out)
    assert lines(shell("show", "a", "--json").out)[0]["binding"]["sha256"] == first["sha256"]
    assert re.search(r"run_started +1\.0\.0 ", shell("history", "a").out)
    worker = shell.process("worker", deploy(shell, "v2", "1.1.0"), "--max-hosts", "0", "--name", "new")
    worker_line = "1 open run is of 'order' bound to other versions than the 1.1.0 of this worker: 1.0.0 (1)"
    says(worker, worker_line)
    found = lines(shell("doctor", "--json").out)[0]["health"]["versions"]
    uses = {one["label"]: one for one in found}
    assert uses["1.0.0"]["runs"] in ({"pending": 1}, {"parked": 1})  # parked, once it is clear that nobody has its code
    assert (uses["1.0.0"]["workers"], uses["1.0.0"]["kept_by"]) == ([], ["1 open run"])
    assert uses["1.1.0"]["workers"] == ["new"]
    assert "being the newest" in uses["1.1.0"]["kept_by"]
    assert re.search(r"order@1\.0\.0 +[0-9a-f]{8} +active +(pending|parked) 1 .*1 open run", shell("doctor").out)


def test_a_worker_that_promotes_its_version_makes_new_runs_start_on_it(shell: Shell) -> None:
    publish(shell, "v1", "1.0.0")
    publish(shell, "v2", "1.1.0")
    worker = shell.process("worker", deploy(shell, "v1", "1.0.0"), "--promote", "--max-hosts", "0")
    says(worker, "new 'order' runs start on 1.0.0")
    route = lines(shell("routes", "show", "order", "--json").out)[0]
    assert [arm["label"] for arm in route["arms"]] == ["1.0.0"]
    again = shell.process("worker", deploy(shell, "v1", "1.0.0"), "--promote", "--max-hosts", "0")
    says(again, "is ready")
    again.send(signal.SIGTERM)  # it is told once it has done all that it does at its start
    assert again.finish().code == 0
    assert lines(shell("routes", "show", "order", "--json").out) == [route]
