"""A project that changes: each deployment is a version of one workflow."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import perdure

FLOW = """
import perdure

CALLS = []


@perdure.step
async def charge(amount: int) -> int:
    CALLS.append("{mark}")
    return amount


@perdure.step
async def ship(amount: int) -> int:
    return amount


@perdure.workflow(name="order"{settings})
async def order(amount: int = 1) -> str:
    total = await charge(amount)
{more}
    return "{mark}"
"""


class Shop:
    """A package ``shop`` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def deploy(self, mark: str, semver: str | None, more: str = "    pass", **files: str) -> ModuleType:
        """Write the code of a version over that of the one before, and import it."""
        package = self.folder / "shop"
        package.mkdir(exist_ok=True)
        settings = "" if semver is None else f', version="{semver}"'
        (package / "__init__.py").write_text("")
        (package / "flow.py").write_text(FLOW.format(mark=mark, settings=settings, more=more))
        for name, text in files.items():
            (package / f"{name}.py").write_text(text)
        for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        return importlib.import_module("shop.flow")


def client(url: str, *modules: ModuleType, **options: Any) -> perdure.Engine:
    """Return an engine that runs nothing."""
    return perdure.Engine(url, modules, worker=False, **options)


async def publish(url: str, module: ModuleType, **options: Any) -> perdure.Published:
    """Publish the one workflow of a module."""
    async with client(url, **options) as engine:
        (one,) = await engine.versions.publish([module], reason="deploy", actor="ana")
        return one
