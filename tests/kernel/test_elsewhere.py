"""A log recorded in one process replays in another: with other hash seeds, and on other Python versions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kernel import interpreters
from tests.kernel.interpreters import HERE, ROOT, environment

SCRIPT = ROOT / "tests" / "kernel" / "elsewhere.py"
NOTICE = """
NOTICE: Python {here} is the only version on this machine that can run perdure.
NOTICE: Logs were not replayed across Python versions; they were replayed across processes and hash seeds.
"""


def run(python: str, verb: str, folder: Path, hash_seed: int) -> dict[str, Any]:
    done = subprocess.run(
        [python, str(SCRIPT), verb, str(folder)],
        env=environment(hash_seed),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="session")
def others(request: pytest.FixtureRequest) -> dict[str, str]:
    """Give the other Python versions, and say so if there are none."""
    cache = request.config.cache
    assert cache is not None
    found = interpreters.find(cache.mkdir("pythons"))
    if not found:
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            sys.stderr.write(NOTICE.format(here=HERE))
    return found


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    run(sys.executable, "record", folder, 1)
    return folder


@pytest.mark.parametrize("hash_seed", [1, 2, 4_294_967_295])
def test_another_process_with_another_hash_seed_replays_every_program(recorded: Path, hash_seed: int) -> None:
    assert run(sys.executable, "replay", recorded, hash_seed)["wrong"] == {}


def fits(wrong: dict[str, str], recorded_on: str, replayed_on: str) -> bool:
    """Whether all came out the same, except the program whose code depends on the version."""
    crosses = (recorded_on == "3.11") != (replayed_on == "3.11")
    if not crosses:
        return not wrong
    excuse = f"incompatible: recorded on Python {recorded_on}, diverges on {replayed_on}"
    parked = [found for name, found in wrong.items() if name.startswith("by_version.")]
    assert all(excuse in found and "calls {}" in found for found in parked), wrong
    return len(parked) == len(wrong) == 2


@pytest.mark.timeout(360)
def test_other_python_versions_replay_every_program_or_park_it(
    recorded: Path, others: dict[str, str], tmp_path: Path
) -> None:
    for version, python in others.items():
        report = run(python, "replay", recorded, 3)
        assert report["python"] == version
        assert fits(report["wrong"], HERE, version), report["wrong"]
        there = tmp_path / version
        there.mkdir()
        run(python, "record", there, 5)
        report = run(sys.executable, "replay", there, 7)
        assert fits(report["wrong"], version, HERE), report["wrong"]
