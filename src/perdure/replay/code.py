"""Where a workflow's code is, so that another process can load it; and the loading."""

from __future__ import annotations

import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from perdure.errors import UsageError
from perdure.kernel.definition import WorkflowDefinition

if TYPE_CHECKING:
    from types import ModuleType

MAIN = "__main__"
_MAIN_HERE = "__perdure_main__"


class Place(NamedTuple):
    """Where a workflow is defined: at the top of a module."""

    workflow: str
    module: str
    attribute: str
    file: str | None
    """The module's file; None for what has none, which can then be imported by its name only."""


def place_of(definition: WorkflowDefinition) -> Place:
    """Return where a workflow is defined.

    Raises:
        UsageError: another process could not find it there.
    """
    module = sys.modules.get(definition.function.__module__)
    attribute = None if module is None else _attribute(module, definition)
    if module is None or attribute is None:
        where = definition.function.__module__
        message = f"workflow {definition.name!r} is not at the top of its module {where}, so no other process finds it"
        raise UsageError(message, hint="check it in this process, with processes=0")
    file = getattr(module, "__file__", None)
    if file is None and module.__name__ == MAIN:
        message = f"workflow {definition.name!r} was typed in, so no other process finds it"
        raise UsageError(message, hint="check it in this process, with processes=0")
    return Place(definition.name, module.__name__, attribute, None if file is None else str(Path(file).resolve()))


def _attribute(module: ModuleType, definition: WorkflowDefinition) -> str | None:
    """Return the name under which a module holds a workflow."""
    return next((name for name, value in vars(module).items() if _definition(value) is definition), None)


def _definition(value: object) -> object:
    attributes = getattr(value, "__dict__", None)  # looked up here: a module may hold objects that answer anything
    return attributes.get("definition") if isinstance(attributes, dict) else None


def load(place: Place) -> WorkflowDefinition:
    """Return the workflow, its module loaded under the name it has where it comes from.

    Raises:
        UsageError: it is not there.
        BaseException: what the module raises.
    """
    module = _main(place) if place.module == MAIN else _module(place)
    definition = _definition(vars(module).get(place.attribute))
    if not isinstance(definition, WorkflowDefinition):
        message = f"{place.module}.{place.attribute} is not the workflow {place.workflow!r} in another process"
        raise UsageError(message)
    return definition


def _module(place: Place) -> ModuleType:
    try:
        module = importlib.import_module(place.module)
    except ModuleNotFoundError as error:
        missing = error.name or place.module
        if place.file is None or not f"{place.module}.".startswith(f"{missing}."):
            raise
    else:
        file = getattr(module, "__file__", None)
        if place.file is None or (file is not None and Path(file).resolve() == Path(place.file)):
            return module
    return _from_file(place.module, str(place.file))


def _main(place: Place) -> ModuleType:
    """Load a script without running what it does as a script; its classes keep the name they are stored under."""
    here = sys.modules.get(_MAIN_HERE)
    if here is not None:
        return here
    module = sys.modules[MAIN] = _from_file(_MAIN_HERE, place.file or "")
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == _MAIN_HERE:
            value.__module__ = MAIN
    return module


def _from_file(name: str, file: str) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == file:
        return known
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        message = f"{file} is not a Python file"
        raise UsageError(message)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
