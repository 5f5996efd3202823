"""Read Markdown pages: their links, their headings and the anchors these give."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)[^\S\n]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
INLINE_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s*<?(\S+?)>?(?:\s.*)?$", re.MULTILINE)
SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:|^//")

ADR_NAME = re.compile(r"^(\d{4})-[a-z0-9]+(?:-[a-z0-9]+)*\.md$")
ADR_HEADINGS = ("Context", "Decision", "Consequences")


def headings(text: str) -> list[str]:
    return HEADING.findall(FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """Give the anchors a page offers, by the rule of the common forges: lower case, hyphens, punctuation dropped."""
    found: set[str] = set()
    for heading in headings(text):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = 0
        while (candidate := f"{slug}-{count}" if count else slug) in found:
            count += 1
        found.add(candidate)
    return found


def links(text: str) -> Iterator[str]:
    plain = CODE.sub("", FENCE.sub("", COMMENT.sub("", text)))
    for target in INLINE_LINK.findall(plain) + REFERENCE.findall(plain):
        if not SCHEME.match(target):
            yield target


def broken_links(page: Path, root: Path) -> Iterator[str]:
    """Give the relative links of a page that lead nowhere."""
    for link in links(page.read_text("utf-8")):
        name, _, anchor = link.partition("#")
        base = root if name.startswith("/") else page.parent
        target = base / unquote(name).lstrip("/") if name else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target.read_text("utf-8"))
        ):
            yield f"{page.relative_to(root)}: {link}"


def decision_faults(folder: Path) -> Iterator[str]:
    """Give what is wrong with the decision records in a folder: numbers, names, headings."""
    pages = sorted(path for path in folder.glob("*.md") if path.name != "template.md")
    for expected, page in enumerate(pages, start=1):
        match = ADR_NAME.match(page.name)
        if not match:
            yield f"{page.name}: not NNNN-short-title.md"
        elif int(match[1]) != expected:
            yield f"{page.name}: expected number {expected:04}"
        missing = [name for name in ADR_HEADINGS if name not in headings(page.read_text("utf-8"))]
        if missing:
            yield f"{page.name}: no heading {', '.join(missing)}"
