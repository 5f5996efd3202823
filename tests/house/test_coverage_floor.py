"""The floor under branch coverage fails when a core package sinks below it, or is not measured at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "coverage_floor.py"


@pytest.mark.parametrize(
    "covered, code, says", [(95, 0, "95.0 % of 100 branches"), (94, 1, "below 95 %"), (None, 1, "0.0 % of 0 branches")]
)
def test_a_core_package_below_the_floor_fails(tmp_path: Path, covered: int | None, code: int, says: str) -> None:
    files = {
        f"/somewhere/perdure/src/perdure/{package}/file.py": {"summary": {"covered_branches": 10, "num_branches": 10}}
        for package in ("model", "kernel", "store")
    }
    files["src/perdure/store/sqlite/file.py"] = {"summary": {"covered_branches": 10, "num_branches": 10}}
    files["src/perdure/cli/main.py"] = {"summary": {"covered_branches": 0, "num_branches": 500}}
    files["src/perdure/errors/root.py"] = {"summary": {"covered_branches": 0, "num_branches": 500}}
    if covered is not None:
        files["src/perdure/runtime/file.py"] = {"summary": {"covered_branches": covered, "num_branches": 100}}
    report = tmp_path / "coverage.json"
    report.write_text(json.dumps({"files": files}))
    done = subprocess.run([sys.executable, SCRIPT, report], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert says in done.stdout
    assert "store    100.0 % of 20 branches" in done.stdout
