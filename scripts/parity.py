"""Write docs/reference/backends.md: what each backend does, and the tests that prove it there.

The first part comes from the contract that every backend is tested against, the second from `FEATURES` below. What is
counted is what pytest collects, by the database that each case of a test is given. A test holds the page to this
script, and refuses a cell that is empty without a reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "backends.md"
BACKENDS = ("sqlite", "postgres", "mysql")
TITLES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "mysql": "MySQL, MariaDB"}
SUITE = "tests/conformance/test_stores.py"
Names = str | tuple[str, ...]
Cells = dict[str, tuple[str, Names]]
"""Backend to (file, what the names of its tests begin with)."""
WORDS = {
    "sqlite": ("sqlite", "apsw"), "postgres": ("postgres", "psycopg"), "mysql": ("mysql", "mariadb"),
}  # fmt: skip
"""What a parameter or a path has in it that tells which backend a test is on."""
FIXTURES = {
    "tmp_db": "sqlite", "shell": "sqlite", "world": "sqlite", "postgres_db": "postgres", "mariadb_db": "mysql",
}  # fmt: skip
ON_A_FILE = (
    ("tests/verify/test_damage.py", ""),
    ("tests/perf/test_bench.py", ("test_every_figure", "test_the_floor_is", "test_so_many_worker")),
    ("tests/guard/test_transactional.py", "test_the_engines_own_file"),
    ("tests/guard/test_start_in.py", "test_an_engine_on_a_file"),
)
"""Tests that make an SQLite file for themselves, so that nothing they are given tells."""


def everywhere(file: str, prefix: Names = "test_") -> Cells:
    """Return the same tests for all backends: they are run once on each."""
    return dict.fromkeys(BACKENDS, (file, prefix))


def split(sqlite: str, server: str, prefix: Names = "test_") -> Cells:
    """Return tests on files, and tests that are run on each server."""
    return {"sqlite": (sqlite, prefix), "postgres": (server, "test_"), "mysql": (server, "test_")}


FEATURES: dict[str, Cells] = {
    "Durability `host`: what was acknowledged outlives the power supply": {
        "sqlite": ("tests/faults/test_sqlite_power.py", "test_a_power_cut"),
        "postgres": ("tests/store/postgres/test_durability.py", "test_"),
        "mysql": ("tests/store/mysql/test_schema.py", "test_no_durability_is_promised"),
    },
    "Durability `quorum`: it outlives the server's machine": {
        "postgres": ("tests/store/postgres/test_quorum.py", "test_"),
        "mysql": ("tests/store/mysql/test_quorum.py", "test_"),
    },
    "An answer to COMMIT that was lost is found out": {
        "sqlite": ("tests/faults/test_sqlite_errors.py", "test_"),
        "postgres": ("tests/store/server/test_lost_commits.py", "test_"),
        "mysql": ("tests/store/server/test_lost_commits.py", "test_"),
    },
    "Killed workers": {
        "sqlite": ("tests/faults/test_sqlite_processes.py", "test_processes_killed"),
        "postgres": ("tests/store/server/test_lives.py", "test_a_run_of_a_killed_worker"),
        "mysql": ("tests/store/server/test_lives.py", "test_a_run_of_a_killed_worker"),
    },
    "The database stops in the middle": {
        "sqlite": ("tests/faults/test_sqlite_errors.py", "test_a_process_killed_at_any_write"),
        "postgres": ("tests/faults/server/test_kills.py", "test_a_killed_server"),
        "mysql": ("tests/faults/server/test_kills.py", "test_a_killed_server"),
    },
    "Guards of the application's writes": everywhere("tests/guard/test_once.py"),
    "Guards under duplicates, re-runs and kills": everywhere("tests/guard/storm/test_storm.py"),
    "Transactional steps": everywhere("tests/guard/test_transactional.py"),
    "Transactional start: in the caller's own transaction; refused on a file": {
        "sqlite": ("tests/guard/test_start_in.py", "test_an_engine_on_a_file"),
        "postgres": ("tests/guard/test_start_in.py", "test_"),
        "mysql": ("tests/guard/test_start_in.py", "test_"),
    },
    "Steps on other queues, under limits": everywhere("tests/cases/test_steps_elsewhere.py"),
    "Steps on other queues, under kills": everywhere(
        "tests/cases/test_steps_elsewhere_crashes.py",
        ("test_the_callers_worker", "test_workers_on_both_sides"),
    ),
    "Transactional steps in the engine's own database: one commit; refused on a file": {
        "sqlite": ("tests/guard/test_transactional.py", "test_the_engines_own_file"),
        "postgres": ("tests/guard/test_own_database.py", "test_"),
        "mysql": ("tests/guard/test_own_database.py", "test_"),
    },
    "`perdure copy`, from and to": everywhere("tests/transfer/test_copy.py"),
    "Migrations beside running workers": everywhere("tests/migration/test_online.py", "test_workers"),
    "`perdure migrate --print`": everywhere("tests/migration/test_online.py", "test_the_printed"),
    "`perdure verify`": split("tests/verify/test_damage.py", "tests/verify/test_servers.py"),
    "`perdure doctor`": split("tests/cli/test_reading.py", "tests/cli/test_doctor_on_servers.py", "test_doctor"),
    "`perdure bench`": split("tests/perf/test_bench.py", "tests/perf/test_servers.py"),
}
PARTS = {
    "WritingContract": "Appends: atomic, durable, fenced; refused ones leave nothing",
    "CreatingContract": "Starts, once for each id",
    "MessagingContract": "Messages: none lost, none taken in twice",
    "TellingContract": "Messages that are part of another run's append",
    "PurgingContract": "Purge, and ids that stay taken",
    "ClaimingContract": "Claims: due runs, one owner each, by priority",
    "QueueingContract": "Queues: limits, rates, pauses, deduplication",
    "TurnsContract": "Queues: turns of keys, ageing",
    "LeasingContract": "Leases and fail-over",
    "ReadingContract": "Logs, listings, statistics",
    "SharingContract": "Several processes and threads on one store",
    "BindingContract": "Runs are bound to a version, and only who has it takes them",
    "UpgradingContract": "Upgrades: fenced, recorded, by plan",
    "DemandingContract": "What code runs need, and who has it",
    "BlobContract": "Versions: contents of files",
    "RegisteringContract": "Versions: registration, labels, the default",
    "StandingContract": "Versions: status, routes, the record",
    "GarbageContract": "Versions: what they are used for, and collection",
    "SigningContract": "Versions: signatures",
}
"""Parts of the contract, as they are called here."""
ABSENT = {("Durability `quorum`: it outlives the server's machine", "sqlite"): "no: one file on one machine"}
"""Cells without a test, and why."""


class Case(NamedTuple):
    """One case of a test, as pytest collects it; see `scripts.collected`."""

    file: str
    of: str
    name: str
    given: list[str]
    fixtures: list[str]
    nightly: bool

    @property
    def backends(self) -> set[str]:
        """The backends it is on: by what it is given, else by its fixtures, else by its file; none if nothing tells."""
        given = _named(self.given)
        fixtures = {FIXTURES[name] for name in self.fixtures if name in FIXTURES}
        own = {"sqlite" for file, names in ON_A_FILE if file == self.file and self.name.startswith(names)}
        return given or fixtures or own or _named([self.file])


class Count(NamedTuple):
    """How many tests there are: those of `make test`, and those that only the long campaigns run."""

    usual: int
    nightly: int

    def __str__(self) -> str:
        return " + ".join(filter(None, [str(self.usual or ""), f"{self.nightly} nightly" if self.nightly else ""]))


def _named(texts: Iterable[str]) -> set[str]:
    told = "\n".join(texts)
    return {backend for backend, words in WORDS.items() if any(word in told for word in words)}


def collected() -> list[Case]:
    """Return what pytest collects of the files that the table is about, whether run by default or only at night."""
    files = sorted({file for cells in FEATURES.values() for file, _ in cells.values()})
    with tempfile.NamedTemporaryFile("r", suffix=".json") as told:
        asked = ["--collect-only", "-qq", "-m", "", "-p", "scripts.collected", "--collected", told.name]
        quiet = ["-p", "no:xdist", "-p", "no:cacheprovider", "--assert=plain"]
        command = [sys.executable, "-m", "pytest", *asked, *quiet, f"{SUITE}::TestStores", *files]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
        return [Case(**case) for case in json.load(told)]


def count(cases: Iterable[Case]) -> Count:
    """Count tests, each once however many cases it has. One is nightly if all of its cases are."""
    nightly: dict[str, bool] = {}
    for case in cases:
        nightly[case.name] = case.nightly and nightly.get(case.name, True)
    at_night = sum(nightly.values())
    return Count(len(nightly) - at_night, at_night)


def rows(cases: Iterable[Case]) -> dict[str, list[str]]:
    """Return feature to cells, in the order of `BACKENDS`. An empty one is empty."""
    on: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        for backend in case.backends:
            on.setdefault((case.file, backend), []).append(case)
    found: dict[str, list[str]] = {}
    for part, title in PARTS.items():
        contract = {backend: [one for one in on.get((SUITE, backend), ()) if one.of == part] for backend in BACKENDS}
        found[title] = [_cell(SUITE, contract[backend]) for backend in BACKENDS]
    for title, cells in FEATURES.items():
        found[title] = [_feature(title, backend, cells, on) for backend in BACKENDS]
    return found


def _feature(title: str, backend: str, cells: Cells, on: Mapping[tuple[str, str], list[Case]]) -> str:
    if backend not in cells:
        return ABSENT.get((title, backend), "")
    file, names = cells[backend]
    return _cell(file, [one for one in on.get((file, backend), ()) if one.name.startswith(names)])


def _cell(file: str, cases: list[Case]) -> str:
    return f"[{count(cases)}](../../{file})" if cases else ""


def page(found: Mapping[str, list[str]]) -> str:
    """Return the page."""
    lines = [
        "# What each backend does",
        "",
        "Every feature is there on every backend; the URL decides. A number says how many tests of it are given a real",
        "database of that kind, each counted once however many cases it has there, and leads to them. Tests that only",
        "the long campaigns run (`make nightly`) are counted apart. The first rows are the contract of a store, word",
        "for word the same for all. Written by `make reference`, from what pytest collects.",
        "",
        f"| | {' | '.join(TITLES[backend] for backend in BACKENDS)} |",
        "|---|---|---|---|",
        *(f"| {title} | {' | '.join(cells)} |" for title, cells in found.items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(rows(collected())), "utf-8")
