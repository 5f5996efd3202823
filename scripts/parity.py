"""Write docs/reference/backends.md: what each backend does, and the tests that prove it there.

The first part comes from the contract that every backend is tested against, the second from `FEATURES` below. A test
holds the page to this script, and refuses a cell that is empty without a reason.
"""

from __future__ import annotations

import ast
from pathlib import Path

from perdure.testing.conformance import StoreConformance

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "backends.md"
BACKENDS = ("sqlite", "postgres", "mysql")
TITLES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "mysql": "MySQL, MariaDB"}
SUITE = "tests/conformance/test_stores.py"
Cells = dict[str, tuple[str, str]]
"""Backend to (file, what the names of its tests begin with)."""


def everywhere(file: str, prefix: str = "test_") -> Cells:
    """Return the same tests for all backends: they are run once on each."""
    return dict.fromkeys(BACKENDS, (file, prefix))


def split(sqlite: str, server: str, prefix: str = "test_") -> Cells:
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
    "Steps on other queues, under limits": everywhere("tests/cases/test_steps_elsewhere.py"),
    "Steps on other queues, under kills": everywhere(
        "tests/cases/test_steps_elsewhere_crashes.py", "test_the_callers_worker_dies"
    ),
    "Transactional steps in the engine's own database: one commit; refused on a file": {
        "sqlite": ("tests/guard/test_transactional.py", "test_the_engines_own_file"),
        "postgres": ("tests/guard/test_own_database.py", "test_"),
        "mysql": ("tests/guard/test_own_database.py", "test_"),
    },
    "`perdure copy`, from and to": everywhere("tests/transfer/test_copy.py", "test_runs_go_on"),
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


def tests_in(file: str, prefix: str) -> int:
    """Count the test functions of a file whose names begin so.

    Raises:
        ValueError: there are none.
    """
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    count = sum(name.startswith("test_") and name.startswith(prefix) for name in names)
    if not count:
        message = f"{file} has no test whose name begins with {prefix}"
        raise ValueError(message)
    return count


def backends_under_the_suite() -> set[str]:
    """Return the backends that the contract is run on."""
    for node in ast.parse((ROOT / SUITE).read_text("utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "BACKENDS":
            keys = node.value.keys if isinstance(node.value, ast.Dict) else []
            return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return set()


def contract() -> dict[str, int]:
    """Return the parts of the contract, each with the number of its sentences."""
    parts = {}
    for part in StoreConformance.__mro__[1:]:
        count = sum(name.startswith("test_") for name in vars(part))
        if count:
            parts[PARTS[part.__name__]] = count
    return parts


def rows() -> dict[str, list[str]]:
    """Return feature to cells, in the order of `BACKENDS`. An empty one is empty."""
    under = backends_under_the_suite()
    found = {
        title: [f"[{count}](../../{SUITE})" if backend in under else "" for backend in BACKENDS]
        for title, count in contract().items()
    }
    for title, cells in FEATURES.items():
        found[title] = [_cell(title, backend, cells) for backend in BACKENDS]
    return found


def _cell(title: str, backend: str, cells: Cells) -> str:
    if backend not in cells:
        return ABSENT.get((title, backend), "")
    return f"[{tests_in(*cells[backend])}](../../{cells[backend][0]})"


def page() -> str:
    """Return the page."""
    lines = [
        "# What each backend does",
        "",
        "Every feature is there on every backend; the URL decides. A number says how many tests prove it there, on a",
        "real database of that kind, and leads to them. The first rows are the contract of a store, word for word the",
        "same for all. Written by `make reference`.",
        "",
        f"| | {' | '.join(TITLES[backend] for backend in BACKENDS)} |",
        "|---|---|---|---|",
        *(f"| {title} | {' | '.join(cells)} |" for title, cells in rows().items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
