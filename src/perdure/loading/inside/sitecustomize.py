"""Read by Python itself when it starts as a child of a version host: puts the guard in place, then makes room.

It must cost little and need nothing, so it loads the guard's file without importing the library. A process started
with ``-I``, ``-E`` or ``-S`` does not come here, and finds what its own path leads to.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run(spec: ModuleSpec | None) -> ModuleType:
    if spec is None or spec.loader is None:
        raise ImportError("a file of perdure is missing")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _beside(name: str) -> ModuleType:
    """Load a file of the folder above, whatever the library's other modules need."""
    return _run(spec_from_file_location(f"_perdure_{name}", os.path.join(os.path.dirname(_HERE), f"{name}.py")))


def _refuse(name: str, text: str) -> ImportError:
    return ModuleNotFoundError(text, name=name)


def _guard() -> None:
    tree, roots, version, elsewhere, distributions = json.loads(os.environ["PERDURE_SNAPSHOT"])

    @cache
    def brought() -> Callable[[str], bool]:
        answer: Callable[[str], bool] = _beside("provided").Provided(distributions)
        return answer

    def provided(module: str) -> bool:
        return brought()(module)  # loaded when first asked for, which is seldom

    guard = _beside("guard").Guard(
        tree, roots, version=version, elsewhere=elsewhere, provided=provided, refuse=_refuse
    )  # fmt: skip
    guard.install()


def _make_room() -> None:
    """Run the ``sitecustomize`` that this one hides."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    hidden = PathFinder.find_spec("sitecustomize")
    if hidden is not None:
        _run(hidden)


if "PERDURE_SNAPSHOT" in os.environ:
    _guard()
_make_room()
