"""How long it takes to find the version of a project of 30,000 lines, and to register it. ``make bench`` prints it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.errors import BlobsMissing
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.catalog.base import Registered
from perdure.testing.conformance.publishing import deciding
from perdure.version.installed import Installed
from perdure.version.scan import Scan, decode
from perdure.version.survey import Survey
from tests.servers.fixtures import Database
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


def register(folder: Path, store: Store, semver: str) -> Registered:
    """Do what a worker does at its start: look for what is kept, find the version, send what lacks, register."""
    catalog = store.catalog
    found = survey(folder, installed=Installed(), scans=catalog.scans)
    given = {"at": store.now(), "actor": "bench", "reason": ""}
    try:
        (one,) = catalog.register(found.release, found.definitions, deciding(semver), **given)  # type: ignore[arg-type]
    except BlobsMissing as error:
        catalog.add_blobs(found.blobs(error.sha256s))
        (one,) = catalog.register(found.release, found.definitions, deciding(semver), **given)  # type: ignore[arg-type]
    return one


@pytest.mark.bench
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_how_long_the_registration_of_30000_lines_takes(
    kind: str, new_database: Callable[[str], Database], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project(tmp_path / "project")
    url = f"sqlite:///{tmp_path / 'runs.db'}" if kind == "sqlite" else new_database(kind).url
    store = open_store(url, StoreOptions())
    store.open()
    seconds = {}
    for what, semver, expected in (("all new", "1.0.0", "version"), ("unchanged", "1.0.0", "seen"),
                                   ("one file changed", "1.1.0", "version")):  # fmt: skip
        if what == "one file changed":
            write(folder, {"shop/flow.py": "__import__(other)\n" + FLOW})
        began = time.perf_counter()
        assert register(folder, store, semver).decision.action == expected
        seconds[what] = time.perf_counter() - began
    store.close()
    with capsys.disabled():
        print(f"\n{kind}, {LINES} lines, seconds: {', '.join(f'{what} {s:.2f}' for what, s in seconds.items())}")
