"""What a body does outside its steps is stopped and told; what imports and logging do is not blamed on it."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perdure.replay.verdict import Verdict
from perdure.replay.verdict import VerdictKind as Kind
from tests.kernel.steps import add, plus
from tests.replay.recorded import lived, unfinished, verdict

TARGET = Path("perdure-effect")


async def pure() -> int:
    return await add(1, 1)


def sync_pure() -> int:
    return plus(1, 1)


def does(effect: Callable[[], Any]) -> Verdict:
    """Check a body that does it after its first step."""

    async def body() -> int:
        found = await add(1, 1)
        effect()
        return found

    return verdict(body, unfinished(lived(pure)))


def does_on_a_thread(effect: Callable[[], Any]) -> Verdict:
    def body() -> int:
        found = plus(1, 1)
        effect()
        return found

    return verdict(body, unfinished(lived(sync_pure)))


EFFECTS: dict[str, tuple[Callable[[], Any], str]] = {
    "write": (lambda: TARGET.write_text("x"), "open('perdure-effect', 'w')"),
    "append": (lambda: TARGET.open("a"), "open('perdure-effect', 'a')"),
    "update": (lambda: TARGET.open("r+"), "open('perdure-effect', 'r+')"),
    "os.open": (lambda: os.open(TARGET, os.O_CREAT | os.O_WRONLY), "open("),
    "remove": (lambda: TARGET.unlink(missing_ok=True), "os.remove("),
    "mkdir": (TARGET.mkdir, "os.mkdir('perdure-effect'"),
    "rename": (lambda: TARGET.rename("elsewhere"), "os.rename("),
    "socket": (socket.socket, "socket.__new__("),
    "connect": (lambda: socket.create_connection(("127.0.0.1", 9)), "socket.getaddrinfo('127.0.0.1', 9"),
    "http": (lambda: urllib.request.urlopen("http://127.0.0.1:9/"), "urllib.Request('http://127.0.0.1:9/'"),
    "process": (lambda: subprocess.run(["true"], check=False), "subprocess.Popen('true', ['true'])"),
    "system": (lambda: os.system("true"), "os.system("),  # noqa: S605 - the point
    "database": (lambda: sqlite3.connect(TARGET), "sqlite3.connect("),
    "environment": (lambda: os.environ.update(PERDURE_EFFECT="1"), "os.putenv("),
    "thread": (lambda: threading.Thread(target=print).start(), "_thread.start_"),
}


@pytest.mark.parametrize("name", EFFECTS)
@pytest.mark.parametrize("check", [does, does_on_a_thread])
def test_an_effect_is_stopped_and_told_with_its_place(
    name: str, check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    effect, told = EFFECTS[name]
    found = check(effect)
    assert (found.kind, found.at) == (Kind.SIDE_EFFECT, "0"), str(found)
    assert found.found.startswith(f"the code does this outside a step: {told}")
    assert f"({__file__}:" in found.found
    assert not list(tmp_path.iterdir())
    assert "PERDURE_EFFECT" not in os.environ


def test_a_body_that_swallows_the_refusal_is_found_out() -> None:
    def stubborn() -> None:
        with suppress(BaseException):
            socket.socket()

    assert does(stubborn).kind is Kind.SIDE_EFFECT
    assert does_on_a_thread(stubborn).kind is Kind.SIDE_EFFECT


def test_reading_and_memory_are_no_effects() -> None:
    def reads() -> None:
        Path(__file__).read_text("utf-8")
        sqlite3.connect(":memory:").close()
        list(Path().iterdir())

    assert does(reads).kind is Kind.SAFE
    assert does_on_a_thread(reads).kind is Kind.SAFE


LAZY = """
import os, socket, threading
os.makedirs({folder!r})
open({folder!r} + "/x", "w").close()
socket.socket().close()
"""


@pytest.mark.parametrize("check", [does, does_on_a_thread])
def test_what_an_import_does_is_not_the_bodys_doing(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"lazy_{check.__name__}"
    (tmp_path / f"{name}.py").write_text(LAZY.format(folder=str(tmp_path / "made")))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)

    def imports() -> None:
        __import__(name)

    assert check(imports).kind is Kind.SAFE
    assert (tmp_path / "made" / "x").exists()
    monkeypatch.delitem(sys.modules, name)


def test_what_logging_does_is_not_the_bodys_doing(tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "log", delay=True)
    logger = logging.getLogger("perdure-test-effect")
    logger.addHandler(handler)
    try:
        assert does(lambda: logger.error("it went wrong")).kind is Kind.SAFE
    finally:
        logger.removeHandler(handler)
        handler.close()
    assert "it went wrong" in (tmp_path / "log").read_text()


def test_other_threads_are_left_alone_meanwhile(tmp_path: Path) -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def other() -> None:
        begun.wait(5)
        (tmp_path / "other").write_text("x")
        done.set()
        go_on.set()

    thread = threading.Thread(target=other)
    thread.start()

    def waits() -> None:
        begun.set()
        assert go_on.wait(5)

    assert does(waits).kind is Kind.SAFE
    thread.join()
    assert done.is_set()


def test_clean_up_of_a_body_that_is_not_at_its_end_is_stopped_and_not_told(tmp_path: Path) -> None:
    async def opens_in_the_end() -> int:
        await add(1, 1)
        try:
            return await add(2, 2)
        finally:
            (tmp_path / "x").write_text("x")

    def sync_opens_in_the_end() -> int:
        plus(1, 1)
        try:
            return plus(2, 2)
        finally:
            (tmp_path / "x").write_text("x")

    assert verdict(opens_in_the_end, unfinished(lived(pure))).next == "step 'add' (1)"
    assert verdict(sync_opens_in_the_end, unfinished(lived(sync_pure))).next == "step 'plus' (1)"
    assert not list(tmp_path.iterdir())


def test_the_body_may_still_do_what_it_likes_in_a_real_run(tmp_path: Path) -> None:
    does(socket.socket)

    async def writes() -> int:
        (tmp_path / "x").write_text("x")
        return await add(1, 1)

    lived(writes)
    assert (tmp_path / "x").exists()
