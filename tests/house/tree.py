"""Find the files of this repository that the house rules bind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.house.rules import Source

ROOT = Path(__file__).resolve().parents[2]
NOT_OURS = frozenset({"build", "dist", "htmlcov", "node_modules"})


def files(suffix: str, *folders: str) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob(f"*{suffix}")):
            parts = path.relative_to(ROOT).parts
            if not any(part in NOT_OURS or part.startswith(".") for part in parts):
                yield path


def sources(*folders: str) -> list[Source]:
    return [_source(path) for path in files(".py", *folders)]


@cache
def _source(path: Path) -> Source:
    return Source.parse(str(path.relative_to(ROOT)), path.read_text("utf-8"))
