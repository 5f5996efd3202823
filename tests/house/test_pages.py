"""Hold the written pages to their form: links lead somewhere, decisions are numbered and complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house import pages
from tests.house.tree import ROOT, files

DECISION = "# Title\n\n## Context\n\n## Decision\n\n## Consequences\n"


def test_every_relative_link_leads_somewhere() -> None:
    found = list(files(".md", "."))
    assert found
    assert not "\n".join(fault for page in found for fault in pages.broken_links(page, ROOT))


def test_every_decision_is_numbered_and_complete() -> None:
    folder = ROOT / "docs" / "adr"
    assert list(folder.glob("0001-*.md"))
    assert not "\n".join(pages.decision_faults(folder))


def test_every_ignored_lint_rule_has_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert not ignores_without_reason(text)


def ignores_without_reason(text: str) -> list[str]:
    entry = re.compile(r'^\s+"[A-Z]+[0-9]*",')
    return [line for line in text.splitlines() if entry.match(line) and not re.search(r",\s*# \S", line)]


@pytest.mark.parametrize(
    "text",
    [
        "[a](missing.md)",
        "[a](/missing.md)",
        "[a](there.md#nothing)",
        "[a](#nothing)",
        "![a](missing.svg 'title')",
        "[a][b]\n\n[b]: missing.md",
    ],
)
def test_a_broken_link_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "there.md").write_text("# A heading\n")
    page = tmp_path / "page.md"
    page.write_text(text)
    assert list(pages.broken_links(page, tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "[a](there.md)",
        "[a](./there.md#a-heading)",
        "[a](/there.md#a-heading-1)",
        "[a](https://example.org/missing.md)",
        "[a](mailto:someone@example.org)",
        "`[a](missing.md)`",
        "```\n[a](missing.md)\n```",
        "# Own, `code` heading\n[a](#own-code-heading)",
    ],
)
def test_a_good_link_passes(tmp_path: Path, text: str) -> None:
    (tmp_path / "there.md").write_text("# A heading\n\n# A heading\n")
    page = tmp_path / "page.md"
    page.write_text(text)
    assert not list(pages.broken_links(page, tmp_path))


@pytest.mark.parametrize(
    "names,text",
    [
        (["0001-a.md", "0003-c.md"], DECISION),
        (["0001-a.md", "0001-b.md"], DECISION),
        (["0002-b.md"], DECISION),
        (["1-a.md"], DECISION),
        (["0001-a.md"], "# Title\n\n## Context\n\n## Decision\n"),
        (["0001-a.md"], "# Title\n\n## Context\n\n## Decision\n\n```\n## Consequences\n```\n"),
    ],
)
def test_a_faulty_decision_is_found(tmp_path: Path, names: list[str], text: str) -> None:
    for name in names:
        (tmp_path / name).write_text(text)
    assert list(pages.decision_faults(tmp_path))


def test_good_decisions_pass(tmp_path: Path) -> None:
    for name in ("0001-a.md", "0002-b-and-c.md", "template.md"):
        (tmp_path / name).write_text(DECISION)
    assert not list(pages.decision_faults(tmp_path))


def test_an_ignore_without_a_reason_is_found() -> None:
    assert ignores_without_reason('ignore = [\n    "A002",\n    "A003", # why\n]\n') == ['    "A002",']
