"""How long the start of a worker spends on versions, end to end. ``make bench`` prints it."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from tests.binding.shops import FLOW, client
from tests.version.test_speed import LINES, project

UNCHANGED_S, CHANGED_S = 1.0, 2.0


@pytest.mark.bench
@pytest.mark.sqlite_only
def test_how_long_registration_of_30000_lines_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project(tmp_path / "code")
    flow = folder / "shop" / "flow.py"
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    url = f"sqlite:///{tmp_path / 'runs.db'}"

    def timed(mark: str, semver: str) -> float:
        flow.write_text("NAMES = [__import__(name) for name in ()]\n" + FLOW.format(
            mark=mark, settings=f', version="{semver}"', more="    pass"))  # fmt: skip
        for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
            del sys.modules[name]
        from shop.flow import order  # type: ignore[import-not-found]  # noqa: PLC0415 - it is written just now

        async def registered() -> float:
            async with client(url, sys.modules["shop.flow"]) as engine:
                began = time.process_time()
                (one,) = await engine.versions.publish(reason="timed")
                spent = time.process_time() - began
                assert one.label == semver
                assert one.workflow == order.name
                return spent

        return asyncio.run(registered())

    first, unchanged, changed = timed("v1", "1.0.0"), timed("v1", "1.0.0"), timed("v2", "1.1.0")
    with capsys.disabled():
        print(f"\n{LINES} lines into SQLite, CPU seconds: all new {first:.2f}, unchanged {unchanged:.2f}, "
              f"one file changed {changed:.2f}")  # fmt: skip
    assert unchanged < UNCHANGED_S
    assert changed < CHANGED_S
