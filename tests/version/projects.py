"""Small projects on disk, and what is found in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.version.definition import Definition, WorkflowSource
from perdure.version.installed import Installed
from perdure.version.locate import Entry, finder
from perdure.version.survey import Survey, take_survey


class NothingInstalled(Installed):
    """An interpreter without a single distribution: reading the real ones takes longer than a test."""

    def reached(self, tops: Any) -> dict[str, str]:
        return {}


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below a folder, the folders they need included."""
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def source(folder: Path, entry: str = "shop.flow:order", **settings: Any) -> WorkflowSource:
    """Return the declaration of a workflow in a project."""
    module, _, name = entry.partition(":")
    file = folder / (module.replace(".", "/") + ".py")
    if not file.exists():
        file = folder / module.replace(".", "/") / "__init__.py"
    return WorkflowSource("order", Entry(module, name, file), **settings)


def survey(folder: Path, *sources: WorkflowSource, also: tuple[Path, ...] = (), **settings: Any) -> Survey:
    """Return what is found in a project, of which nothing but its own folder can be seen."""
    settings.setdefault("installed", NothingInstalled())
    return take_survey(sources or (source(folder),), find=finder(folder, *also), **settings)


def identity(folder: Path, entry: str = "shop.flow:order", **settings: Any) -> Definition:
    """Return the version of one workflow in a project."""
    (definition,) = survey(folder, source(folder, entry, **settings)).definitions
    return definition


FLOW = "async def order(): ...\n"
FATAL = "raise SystemExit('a module was executed')\n"
OWN = {"shop/__init__.py", "shop/flow.py"}


def shop(flow: str, **files: str) -> dict[str, str]:
    """Return the files of a package: its ``flow.py`` that begins so, and more; ``a__of__b`` is ``a/b.py``."""
    named = {f"shop/{name.replace('__of__', '/')}.py": text for name, text in files.items()}
    return {"shop/__init__.py": "", "shop/flow.py": flow + FLOW, **named}


def reached(folder: Path, files: Mapping[str, str], **settings: Any) -> set[str]:
    """Return the paths that count, of a project with these files."""
    return set(identity(write(folder, files), **settings).parts)
