"""How large a change of a workflow is: what it does, step after step, before and after. Source is only parsed.

What a function does is written as a line of words in the order of the source: the steps it calls, what it asks of the
engine, and around those the statements that decide whether or how often they are reached. Functions of the same files
are written out where they are called. It is a proposal for a number, no proof: `perdure check` replays real runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal

from perdure.version.label import Semver
from perdure.version.scan import parse_source

Level = Literal["patch", "minor", "major"]
Files = Mapping[str, bytes]
"""Path to bytes of the source files that count."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef

_ENGINE: Final = "perdure"
_BLOCKS: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith, ast.Match, ast.IfExp)
_DEEPEST: Final = 20


def level(old: Sequence[str], new: Sequence[str]) -> Level:
    """Return which part of the number has to grow: patch if the same is done, minor if more follows, else major."""
    if list(old) == list(new):
        return "patch"
    return "minor" if list(new[: len(old)]) == list(old) else "major"


def bumped(semver: Semver, by: Level) -> str:
    """Return the next number. A pre-release becomes its release."""
    major, minor, patch = semver.precedence[:3]
    if semver.is_pre_release:
        return f"{major}.{minor}.{patch}"
    return {"major": f"{major + 1}.0.0", "minor": f"{major}.{minor + 1}.0", "patch": f"{major}.{minor}.{patch + 1}"}[by]


def steps_of(files: Files, entry: str) -> list[str]:
    """Return what a workflow does, in words; nothing where its function is not found.

    Args:
        files: the source it can reach.
        entry: module and name of its function.
    """
    return _Reader(files).words_of(entry)


class _Reader:
    """Reads the functions of some files."""

    def __init__(self, files: Files) -> None:
        self._trees: dict[str, ast.Module] = {}
        self._functions: dict[str, _Function] = {}
        self._steps: set[str] = set()
        self._asked: set[str] = set()
        self._under_way: list[str] = []
        for path, data in sorted(files.items()):
            with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                self._take(path, parse_source(data))

    def words_of(self, entry: str) -> list[str]:
        """Return the words of a function of a module."""
        module, _, name = entry.partition(":")
        base = module.replace(".", "/")
        tree = self._trees.get(f"{base}.py") or self._trees.get(f"{base}/__init__.py")
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, _Function) and node.name == name.rpartition(".")[2]:
                return list(self._body(node))
        return []

    def _take(self, path: str, tree: ast.Module) -> None:
        self._trees[path] = tree
        for node in ast.walk(tree):
            if isinstance(node, _Function):
                self._functions[node.name] = node
                if any(_name(mark) == "step" for mark in node.decorator_list):
                    self._steps.add(node.name)
            elif isinstance(node, ast.ImportFrom) and node.module == _ENGINE and not node.level:
                self._asked |= {alias.asname or alias.name for alias in node.names}

    def _body(self, function: _Function) -> Iterator[str]:
        for statement in function.body:
            yield from self._words(statement)

    def _words(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, _Function | ast.Lambda | ast.ClassDef):
            return  # what is only defined is not done here
        inner = [word for child in ast.iter_child_nodes(node) for word in self._words(child)]
        if isinstance(node, ast.Call):
            yield from inner  # arguments first: they are evaluated first
            yield from self._call(node)
        elif isinstance(node, _BLOCKS) and inner:
            yield from (f"{type(node).__name__}(", *inner, ")")
        else:
            yield from inner

    def _call(self, node: ast.Call) -> Iterator[str]:
        name = _name(node)
        of_engine = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
        if name in self._steps:
            yield name
        elif (of_engine and node.func.value.id == _ENGINE) or name in self._asked:  # type: ignore[attr-defined]
            yield f"{_ENGINE}.{name}"
        elif name in self._functions and name not in self._under_way and len(self._under_way) < _DEEPEST:
            self._under_way.append(name)
            yield from self._body(self._functions[name])
            self._under_way.pop()


def _name(node: ast.expr) -> str:
    """Return the last part of the name that is called, or that decorates."""
    target = node.func if isinstance(node, ast.Call) else node
    if isinstance(target, ast.Attribute):
        return target.attr
    return target.id if isinstance(target, ast.Name) else ""
