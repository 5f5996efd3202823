"""Read source files and report what breaks a house rule.

Each rule is a function from one source file to findings, so that it can be tried on a snippet. The folders a rule
binds, and its exceptions with their reasons, stand in `test_code.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from perdure.version.scan import parse_source

FILE_SOFT, FILE_HARD = 400, 600
FUNCTION_SOFT, FUNCTION_HARD = 40, 80
PUBLIC_METHODS = 15

BANNED_NAMES = frozenset({"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"})
FOREIGN_PROTOCOLS = frozenset({"AbstractEventLoop", "BaseEventLoop"})
CODE_FROM_DATA = frozenset({"cloudpickle", "dill", "jsonpickle", "marshal", "pickle", "shelve"})
CODE_FROM_TEXT = frozenset({"__import__", "compile", "eval", "exec"})
YAML_LOADERS = frozenset({"yaml.full_load", "yaml.load", "yaml.load_all", "yaml.unsafe_load"})

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One breach of one rule."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


@dataclass(frozen=True, kw_only=True)
class Source:
    """One Python file, parsed once."""

    path: str
    text: str
    tree: ast.Module = field(repr=False)

    @classmethod
    def parse(cls, path: str, text: str) -> Source:
        return cls(path=path, text=text, tree=parse_source(text.encode()))

    def finding(self, line: int, what: str) -> Finding:
        return Finding(path=self.path, line=line, what=what)


def file_length(source: Source, limit: int) -> Iterator[Finding]:
    lines = len(source.text.splitlines())
    if lines > limit:
        yield source.finding(1, f"{lines} lines, more than {limit}")


def function_lines(node: FunctionNode) -> int:
    """Count the lines of a function, its docstring left out: an explanation must not cost budget."""
    total = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        total -= (first.end_lineno or first.lineno) - first.lineno + 1
    return total


def function_length(source: Source, limit: int) -> Iterator[Finding]:
    for node in ast.walk(source.tree):
        if isinstance(node, FunctionNode) and (lines := function_lines(node)) > limit:
            yield source.finding(node.lineno, f"{node.name} has {lines} lines, more than {limit}")


def class_width(source: Source) -> Iterator[Finding]:
    """Report classes with too many public methods; overloads and setters of one name count once."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ClassDef) or any(last_name(base) in FOREIGN_PROTOCOLS for base in node.bases):
            continue
        names = {item.name for item in node.body if isinstance(item, FunctionNode)}
        names = {name for name in names if not name.startswith(("_", "test_"))}
        if len(names) > PUBLIC_METHODS:
            yield source.finding(node.lineno, f"{node.name} has {len(names)} public methods")


def last_name(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def module_name(source: Source) -> Iterator[Finding]:
    for part in PurePosixPath(source.path).with_suffix("").parts:
        if part.lstrip("_") in BANNED_NAMES:
            yield source.finding(1, f"{part!r} names no responsibility")


def inner_imports(source: Source, first_party: str) -> Iterator[Finding]:
    for function in ast.walk(source.tree):
        if not isinstance(function, FunctionNode):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""] if node.level == 0 else [first_party]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            if any(name.split(".")[0] == first_party for name in names):
                yield source.finding(node.lineno, f"{function.name} imports {first_party} inside the function")


def imported_names(source: Source) -> dict[str, str]:
    """Map each name a file binds by import to what it stands for, so that an alias hides nothing."""
    names: dict[str, str] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dotted(node: ast.expr, names: dict[str, str]) -> str:
    """Give the full dotted name of a call target, or an empty text when it is not a plain name."""
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value, names)
        return f"{owner}.{node.attr}" if owner else ""
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def used_names(source: Source) -> Iterator[tuple[int, str]]:
    """Give every plain or dotted name that is read, called or not, with its line."""
    names = imported_names(source)
    for node in ast.walk(source.tree):
        if (
            isinstance(node, ast.Name | ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and (name := dotted(node, names))
        ):
            yield node.lineno, name.removeprefix("builtins.")


def code_from_outside(source: Source, allowed: AbstractSet[str] = frozenset()) -> Iterator[Finding]:
    """Report what turns text or bytes into running code: eval and its kin, pickle and its kin, import by name."""
    banned = CODE_FROM_TEXT | YAML_LOADERS | {"importlib.import_module"}
    for line, name in used_names(source):
        if name in banned - allowed:
            yield source.finding(line, f"uses {name}")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules = [node.module or ""]
        else:
            continue
        for module in modules:
            if module.split(".")[0] in CODE_FROM_DATA - allowed:
                yield source.finding(node.lineno, f"imports {module}")


def sleeps(source: Source) -> Iterator[Finding]:
    for line, name in used_names(source):
        if name == "time.sleep":
            yield source.finding(line, "sleeps; wait for a signal instead")
