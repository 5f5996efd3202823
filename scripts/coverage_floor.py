"""Hold the core packages to their share of covered branches: `python scripts/coverage_floor.py coverage.json`.

The file is what `coverage json` writes. Prints one line per package; exit code 1 when one is below the floor.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path, PurePosixPath
from typing import Any

CORE = ("model", "kernel", "store", "runtime")
FLOOR = 95.0


def shares(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return package to covered and all branches."""
    found = dict.fromkeys(CORE, (0, 0))
    for name, file in report["files"].items():
        parts = PurePosixPath(name).parts
        place = len(parts) - 1 - parts[::-1].index("perdure") if "perdure" in parts else -1
        package = parts[place + 1] if 0 <= place < len(parts) - 1 else ""
        if package in found:
            covered, every = found[package]
            summary = file["summary"]
            found[package] = (covered + summary["covered_branches"], every + summary["num_branches"])
    return found


def main(path: str) -> int:
    """Print the shares and judge them."""
    code = 0
    for package, (covered, every) in shares(json.loads(Path(path).read_text("utf-8"))).items():
        share = 100 * covered / every if every else 0.0
        verdict = "" if share >= FLOOR else f"  below {FLOOR:g} %"
        print(f"{package:8} {share:5.1f} % of {every} branches{verdict}")
        code |= bool(verdict)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
