"""How long it takes to find the version of a project of 30,000 lines. ``make bench`` prints it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from perdure.version.dependency import Installed
from perdure.version.scan import Scan, decode
from perdure.version.survey import Survey
from tests.version.projects import FLOW, survey, write

SOURCES = sorted(Path(__file__).parents[2].joinpath("src", "perdure").rglob("*.py"))
LINES = 30_000


def project(folder: Path) -> Path:
    """Write a package of real code, all of which is reached."""
    files: dict[str, str | bytes] = {"shop/__init__.py": "", "shop/flow.py": "__import__(name)\n" + FLOW}
    lines = 0
    while lines < LINES:
        for file in SOURCES:
            if lines < LINES:
                data = file.read_bytes()
                files[f"shop/m{len(files)}.py"] = data + f"\n# {len(files)}\n".encode()
                lines += data.count(b"\n")
    return write(folder, files)


def timed(folder: Path, kept: dict[str, Scan]) -> tuple[float, Survey]:
    began = time.process_time()
    found = survey(
        folder, installed=Installed(), scans=lambda wanted: {sha: kept[sha] for sha in wanted if sha in kept}
    )
    return time.process_time() - began, found


@pytest.mark.bench
def test_how_long_a_project_of_30000_lines_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = project(tmp_path)
    first, found = timed(folder, {})
    kept: dict[str, Scan] = {}
    began = time.process_time()
    for blob in found.blobs({file.sha256 for file in found.release.manifest.values()}):
        if blob.scan is not None and (scan := decode(blob.scan)) is not None:
            kept[blob.sha256] = scan
    packed = time.process_time() - began
    again, same = timed(folder, kept)
    assert same.definitions == found.definitions
    write(folder, {"shop/flow.py": "__import__(other)\n" + FLOW})
    changed, _ = timed(folder, kept)
    with capsys.disabled():
        print(f"\n{LINES} lines, {len(found.release.manifest)} files, CPU seconds: all new {first:.2f}, "
              f"packing all {packed:.2f}, unchanged {again:.2f}, one file changed {changed:.2f}")  # fmt: skip
