"""The ways in which newer code lies around on a machine, each in an interpreter of its own."""

from __future__ import annotations

import os
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import perdure
from perdure.runtime.hosts.job import Job
from perdure.runtime.hosts.process import Spawner
from tests.version.projects import write

WAYS = ("path", "pth", "editable", "installed")

# As setuptools writes it for an editable installation without a folder on the path.
_FINDER = """
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
MAPPING = {mapping!r}

class Finder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        for package, where in MAPPING.items():
            if fullname == package or fullname.startswith(package + "."):
                parts = [part for part in fullname.removeprefix(package).split(".") if part]
                base = Path(where, *parts)
                for candidate in (base / "__init__.py", base.with_suffix(".py")):
                    if candidate.exists():
                        return spec_from_file_location(fullname, candidate)
                if base.is_dir():
                    spec = ModuleSpec(fullname, None, is_package=True)
                    spec.submodule_search_locations.append(str(base))
                    return spec

def install():
    sys.meta_path.append(Finder)
"""


class Interpreter(NamedTuple):
    """A Python, and the environment to start it with."""

    python: Path
    environ: dict[str, str]

    @property
    def spawner(self) -> Spawner:
        """Starts hosts on it."""

        async def interpreter(_job: Job) -> str:
            return str(self.python)

        return Spawner(interpreter, self.environ)


def new_interpreter(folder: Path) -> tuple[Interpreter, Path]:
    """Make an interpreter that has what this one has; return also where more can be installed."""
    venv.EnvBuilder(symlinks=True).create(folder)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    engine = Path(perdure.__file__).parents[1]
    (site / "base.pth").write_text(f"{engine}\n{sysconfig.get_path('purelib')}\n")
    return Interpreter(folder / "bin" / "python", {**os.environ, "PYTHONPATH": ""}), site


def deploy(tmp: Path, way: str, files: Mapping[str, str | bytes]) -> Interpreter:
    """Put newer code where an interpreter finds it."""
    interpreter, site = new_interpreter(tmp / "venv")
    if way == "installed":
        write(site, files)
        info = site / "shop-1.4.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.4.0\n")
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))
        return interpreter
    app = write(tmp / "v2", files)
    if way == "path":
        interpreter.environ["PYTHONPATH"] = str(app)
    elif way == "pth":
        (site / "shop.pth").write_text(f"{app}\n")
    else:
        tops = {path.split("/")[0].removesuffix(".py") for path in files}
        mapping = {top: str(app / top) for top in tops}
        (site / "__editable___shop_finder.py").write_text(_FINDER.format(mapping=mapping))
        (site / "shop.pth").write_text("import __editable___shop_finder; __editable___shop_finder.install()\n")
    return interpreter
