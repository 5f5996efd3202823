"""ARCHITECTURE.md names what is there, and all of it."""

from __future__ import annotations

import re

import pytest

from tests.house.tree import ROOT, files

PAGE = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
SOURCE = ROOT / "src" / "perdure"
PATHS = sorted(set(re.findall(r"`((?:src|tests|docs|kernel|runtime|store|model)/[\w./]*)`", PAGE)))


def layers() -> set[str]:
    table = PAGE.partition("## Layers")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| [^|]+ \| `([\w.]+)` \|", table, re.MULTILINE))


def test_the_layers_are_the_packages_there_are() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert layers() == packages


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_is_named_is_there(path: str) -> None:
    assert any((base / path).exists() for base in (ROOT, SOURCE))


def test_the_worked_examples_are_where_the_table_says() -> None:
    table = PAGE.partition("## To add")[2].partition("\n## ")[0]
    named = re.findall(r"\| `(\w[\w-]*\.(?:py|sql|md))`", table)
    assert len(named) >= 6
    there = {path.name for suffix in (".py", ".sql", ".md") for path in files(suffix, "src", "docs")}
    assert set(named) <= there


def test_the_tables_are_those_of_the_schema() -> None:
    schema = "".join(path.read_text("utf-8") for path in sorted((SOURCE / "store" / "sql" / "sqlite").glob("*.sql")))
    tables = set(re.findall(r"create table (?:if not exists )?(\w+)", schema))
    section = PAGE.partition("## Tables")[2].partition("\n## ")[0]
    assert tables
    assert tables <= set(re.findall(r"`(\w+)`", section))


def test_every_invariant_of_store_and_writer_is_on_the_page() -> None:
    code = "".join((SOURCE / "store" / name).read_text("utf-8") for name in ("base.py", "writer.py"))
    assert set(re.findall(r"\*\*([SW]\d)\*\*", code)) == set(re.findall(r"\b([SW]\d):", PAGE))
