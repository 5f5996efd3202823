"""Targets: ``package.module:workflow``, ``package.module`` or ``file.py[:workflow]``, and what can be wrong with one.

The code of a target is the user's: whatever it raises while it is imported is told in one line that names the place.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perdure.api.decorators import Workflow
from perdure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


class Target(NamedTuple):
    """What a target names.

    Attributes:
        text: as it was typed.
        module: the module it is in.
        workflows: the workflows it names: one after a colon, else all of the module.
        whole: no single workflow was named, so the steps of the module belong to it too.
    """

    text: str
    module: ModuleType
    workflows: tuple[Workflow[Any, Any], ...]
    whole: bool

    @property
    def given(self) -> Any:
        """What an engine is to be given."""
        return self.module if self.whole else self.workflows[0]


def load(text: str) -> Target:
    """Import a target.

    Raises:
        UsageError: there is no such file or module, it cannot be imported, or it has no such workflow.
    """
    where, _, name = text.partition(":")
    module = _from_file(where) if is_file(where) else _from_name(where)
    if name:
        return Target(text, module, (_named(module, where, name),), whole=False)
    found = workflows_of(module)
    if not found:
        message = f"{where} has no workflow"
        raise UsageError(message, hint="decorate a function with @perdure.workflow")
    return Target(text, module, found, whole=True)


def load_one(text: str) -> Target:
    """Import a target that must name one workflow.

    Raises:
        UsageError: see `load`; or it has several.
    """
    target = load(text)
    if len(target.workflows) > 1:
        names = ", ".join(sorted(workflow.name for workflow in target.workflows))
        message = f"{text} has several workflows: {names}"
        raise UsageError(message, hint=f"name one: {text}:{min(_attributes(target.module))}")
    return target


def is_target(text: str) -> bool:
    """Whether a text names code and is not the bare name of a workflow."""
    where, colon, _ = text.partition(":")
    return bool(colon) or is_file(where)


def is_file(where: str) -> bool:
    """Whether a text before the colon means a file."""
    return where.endswith(".py") or "/" in where


def workflows_of(module: ModuleType) -> tuple[Workflow[Any, Any], ...]:
    """Return the workflows that a module defines; if it defines none, those it has from elsewhere."""
    found = list(_attributes(module).values())
    own = [workflow for workflow in found if workflow.definition.function.__module__ == module.__name__]
    return tuple(own or found)


def _attributes(module: ModuleType) -> dict[str, Workflow[Any, Any]]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Workflow)}


def _named(module: ModuleType, where: str, name: str) -> Workflow[Any, Any]:
    value = getattr(module, name, None)
    if isinstance(value, Workflow):
        return value
    found = _attributes(module)
    for workflow in found.values():
        if workflow.name == name:
            return workflow
    if value is not None:
        message = f"{name} in {where} is not a workflow"
        raise UsageError(message, hint="decorate the function with @perdure.workflow")
    message = f"{where} has no workflow {name!r}"
    raise UsageError(message, hint=f"it has {', '.join(sorted(found))}" if found else "it has none")


def _from_name(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        message = f"{name!r} is neither a module nor a file that ends with .py"
        raise UsageError(message, hint="expected package.module:workflow or file.py:workflow")
    _add_path(str(Path.cwd()))

    def load_it() -> ModuleType:
        return importlib.import_module(name)

    try:
        return _guarded(name, load_it)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name != missing and not name.startswith(f"{missing}."):
            raise _import_error(name, error) from None
        message = f"no module {name!r} here or among the installed packages"
        raise UsageError(message, hint=f"for a file, write {name}.py" if Path(f"{name}.py").exists() else "") from None


def _from_file(where: str) -> ModuleType:
    path = Path(where)
    if path.is_dir():
        message = f"{where} is a folder, not a file"
        raise UsageError(message)
    if not path.is_file():
        message = f"no such file: {where}"
        raise UsageError(message)
    return _load_file(where, path.resolve())


def _load_file(where: str, path: Path) -> ModuleType:
    """Import a file under the name that an ``import`` would give it: stored data names classes by it."""
    name, root = _module_name(path)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    _add_path(str(root))
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        message = f"{where} is not a Python file"
        raise UsageError(message, hint="its name must end with .py")
    module, loader = module_from_spec(spec), spec.loader

    def load_it() -> ModuleType:
        package = name.rpartition(".")[0]
        if package:
            importlib.import_module(package)
        sys.modules[name] = module
        loader.exec_module(module)
        return module

    try:
        return _guarded(where, load_it)
    except BaseException as error:
        sys.modules.pop(name, None)
        if isinstance(error, ModuleNotFoundError):
            raise _import_error(where, error) from None
        raise


def _module_name(path: Path) -> tuple[str, Path]:
    """Return the file's full name and the folder it is found from, as ``import`` would know it.

    A file that would hide something else of its name, as ``json.py`` does, gets a name of its own.
    """
    root, name = path.parent, path.stem
    while (root / "__init__.py").is_file():
        root, name = root.parent, f"{root.name}.{name}"
    known = sys.modules.get(name)
    same = known is not None and getattr(known, "__file__", None) == str(path)
    free = name not in sys.stdlib_module_names and (known is None or same)
    return (name if free and name.replace(".", "_").isidentifier() else f"perdure_target_{path.stem}"), root


def _add_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _guarded(where: str, call: Callable[[], ModuleType]) -> ModuleType:
    """Run the user's module; ModuleNotFoundError is the caller's to judge."""
    try:
        return call()
    except (ModuleNotFoundError, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - the user's code may raise anything, SystemExit too
        raise _import_error(where, error) from None


def _import_error(where: str, error: BaseException) -> UsageError:
    last = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    return UsageError(f"{where} cannot be imported: {last}{_place(error)}")


def _place(error: BaseException) -> str:
    """Return file and line of the user's code that raised."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}, line {error.lineno})"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_machinery(frame.filename)]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _is_machinery(file: str) -> bool:
    return file.startswith("<frozen ") or file in (__file__, importlib.__file__)
