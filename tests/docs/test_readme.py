"""The README: its example survives kill -9, and each promise names a test that is there."""

from __future__ import annotations

import re
import signal
import sys
import time
from pathlib import Path

import pytest

import perdure
from tests.docs.blocks import blocks
from tests.house.tree import ROOT
from tests.process import Spawner

README = (ROOT / "README.md").read_text("utf-8")
PROMISE = re.compile(r"^\| (G\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
LINK = re.compile(r"\[(test_\w+)\]\(([\w./]+\.py)\)")


def example() -> str:
    return next(block.text for block in blocks(ROOT / "README.md") if block.language == "python")


def test_the_first_lines_are_one_sentence_and_the_two_commands() -> None:
    title, sentence, commands = README.split("\n\n")[:3]
    assert title == "# Perdure"
    assert sentence.count(".") == 1
    assert re.findall(r"^make (\w+)", commands, re.MULTILINE) == ["demo", "test"]


def test_the_example_is_short() -> None:
    lines = [line for line in example().splitlines() if line and not line.startswith("#")]
    assert len(lines) <= 21


async def until_recorded(db: Path, run_id: str, event: str) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        async with perdure.Engine(f"sqlite:///{db}", worker=False, read_only=True) as engine:
            if any(found.type == event for found in await engine.get(run_id).history()):
                return
    raise AssertionError(f"{event} was not recorded")


async def test_the_example_survives_kill_9(spawn: Spawner, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(example(), "utf-8")
    first = spawn(sys.executable, "shop.py", folder=tmp_path)
    first.expect("charging teapot")
    await until_recorded(tmp_path / "shop.db", "order-1", "step_completed")
    first.send(signal.SIGKILL)
    assert first.finish().code == -signal.SIGKILL

    second = spawn(sys.executable, "shop.py", folder=tmp_path).finish(30)
    assert (second.code, second.out) == (0, "shipping teapot\nparcel-teapot\n"), second.err

    third = spawn(sys.executable, "shop.py", folder=tmp_path).finish(30)
    assert (third.code, third.out) == (0, "parcel-teapot\n"), third.err


def test_every_guarantee_is_a_row_or_is_said_to_be_missing() -> None:
    rows = [name for name, _, _ in PROMISE.findall(README)]
    missing = re.findall(r"G\d+", README.partition("**Not in this version:**")[2].partition("\n\n")[0])
    assert len(rows) == len(set(rows))
    assert set(rows) | set(missing) == {f"G{n}" for n in range(1, 20)}
    assert set(rows) & set(missing) == {"G14"}  # cancel is there, pause and terminate are not


@pytest.mark.parametrize("name,tests", [(name, tests) for name, _, tests in PROMISE.findall(README)])
def test_a_promise_names_a_test(name: str, tests: str) -> None:
    assert LINK.findall(tests), f"{name} has no test"


@pytest.mark.parametrize("test,path", sorted(set(LINK.findall(README))))
def test_a_test_that_is_named_is_there(test: str, path: str) -> None:
    assert f"def {test}(" in (ROOT / path).read_text("utf-8")


def test_the_figures_have_their_place() -> None:
    assert README.index("<!-- figures -->") < README.index("<!-- /figures -->")
