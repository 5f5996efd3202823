"""What a syntax tree refers to outside of itself: imports, modules named in text, and imports by a computed name.

Nothing is resolved here. A file is the same under any name and in any tree, so what is found can be kept with the
file's bytes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

ANYTHING: Final = ""
"""The head of a computed name of which nothing is known."""

_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+(:[^\W\d]\w*(\.[^\W\d]\w*)*)?")
_LONGEST_NAME: Final = 200

_IMPORTERS: Final = frozenset(
    {
        "__import__", "builtins.__import__", "importlib.__import__", "importlib.import_module", "pkgutil.resolve_name",
        "pydoc.locate", "runpy.run_module",
    }
)  # fmt: skip
_LOADERS: Final = frozenset(
    {
        "imp.load_source", "importlib.machinery.SourceFileLoader", "importlib.util.spec_from_file_location",
        "runpy.run_path",
    }
)  # fmt: skip
_OWN_PACKAGE: Final = ("__package__", "__name__", "__spec__.parent")
_WORKFLOW: Final = "perdure.workflow"


class Import(NamedTuple):
    """One import as it is written: ``from ..a import b`` is level 2, module ``a``, names ``b``."""

    level: int
    module: str
    names: tuple[str, ...] = ()


class Computed(NamedTuple):
    """An import whose name is not a literal: its line, and the part of the name that is known.

    ``.`` is the file's own package, ``shop.plugins`` a package, and an empty text nothing at all.
    """

    line: int
    head: str


class References(NamedTuple):
    """What one file refers to."""

    imports: tuple[Import, ...] = ()
    mentions: tuple[str, ...] = ()
    """Texts that may name a module, such as ``shop.plugins.fraud`` or ``shop.boot:init``."""
    computed: tuple[Computed, ...] = ()
    exports: tuple[str, ...] | None = ()
    """Names in ``__all__``; None where it is computed."""


Nodes = dict[type[ast.AST], list[Any]]


def wanted_nodes() -> Nodes:
    """Return the empty lists that `references` needs filled, by class of node."""
    kinds = (ast.Import, ast.ImportFrom, ast.If, ast.Call, ast.Attribute, ast.Name, ast.Constant)
    return {kind: [] for kind in (*kinds, ast.Assign, ast.AnnAssign, ast.AugAssign)}


def references(nodes: Nodes) -> References:
    """Return what the nodes of one file refer to."""
    unseen = _typing_only(nodes[ast.If])
    imports = set(_statements(nodes, unseen))
    names = _bound_names([*nodes[ast.Import], *nodes[ast.ImportFrom]])
    computed: set[Computed] = set()
    called: set[int] = set()
    for call in nodes[ast.Call]:
        if (name := _dotted(call.func, names)) in _IMPORTERS and (call.args or call.keywords):
            called.add(id(call.func))
            found = _by_call(name, call)
            (imports if isinstance(found, Import) else computed).add(found)  # type: ignore[arg-type]
    for node in (*nodes[ast.Name], *nodes[ast.Attribute]):
        if id(node) not in called and _dotted(node, names) in _IMPORTERS | _LOADERS:
            computed.add(Computed(node.lineno, ANYTHING))
    return References(
        tuple(sorted(imports)), tuple(sorted(_mentions(nodes[ast.Constant]))), tuple(sorted(computed)), _exports(nodes)
    )


def drop_labels(tree: ast.Module) -> None:
    """Take the literal ``version=`` out of every ``@perdure.workflow(...)``: a label is not part of what it labels."""
    names: dict[str, str] | None = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for call in node.decorator_list:
            if not isinstance(call, ast.Call) or not any(keyword.arg == "version" for keyword in call.keywords):
                continue
            names = names or _bound_names(one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom))
            if _dotted(call.func, names) == _WORKFLOW:
                call.keywords = [keyword for keyword in call.keywords if not _is_label(keyword)]


def _is_label(keyword: ast.keyword) -> bool:
    return keyword.arg == "version" and isinstance(keyword.value, ast.Constant)


def _typing_only(conditions: Iterable[ast.If]) -> set[int]:
    """Return the imports that no interpreter executes: those under ``if TYPE_CHECKING:``."""
    unseen: set[int] = set()
    for condition in conditions:
        test = condition.test
        negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        name = test.operand if negated else test  # type: ignore[attr-defined]
        if (isinstance(name, ast.Name) and name.id == "TYPE_CHECKING") or (
            isinstance(name, ast.Attribute) and name.attr == "TYPE_CHECKING"
        ):
            for statement in condition.orelse if negated else condition.body:
                unseen.update(id(node) for node in ast.walk(statement))
    return unseen


def _statements(nodes: Nodes, unseen: set[int]) -> Iterator[Import]:
    for node in nodes[ast.Import]:
        if id(node) not in unseen:
            yield from (Import(0, alias.name) for alias in node.names)
    for node in nodes[ast.ImportFrom]:
        if id(node) not in unseen:
            yield Import(node.level, node.module or "", tuple(sorted(alias.name for alias in node.names)))


def _bound_names(nodes: Iterable[ast.Import | ast.ImportFrom]) -> dict[str, str]:
    """Map the names that imports bind to what they stand for, so that an alias hides nothing."""
    names: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _dotted(node: ast.AST, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


def _by_call(name: str, call: ast.Call) -> Import | Computed:
    """Return what a call such as ``import_module(...)`` imports."""
    words = {keyword.arg: keyword.value for keyword in call.keywords}
    target = call.args[0] if call.args else words.get("name")
    text = _literal(target)
    package = call.args[1] if len(call.args) > 1 else words.get("package")
    if text is None:
        head = _head(target)
        if head == "." and package is not None and _dotted(package, {}) not in _OWN_PACKAGE:
            head = _literal(package) or ANYTHING
        return Computed(call.lineno, head)
    if name.endswith("__import__"):
        return _by_dunder(call, words, text)
    module = text.partition(":")[0]
    level = len(module) - len(module.lstrip("."))
    if not level:
        return Import(0, module)
    if package is not None and _dotted(package, {}) in _OWN_PACKAGE:
        # `__name__` of a package's `__init__` is the package itself.
        return Import(level, module[level:])
    anchor = _literal(package)
    if anchor is None:
        return Computed(call.lineno, ANYTHING)
    parents = anchor.split(".")
    return Import(0, ".".join([*parents[: len(parents) - level + 1], module[level:]]))


def _by_dunder(call: ast.Call, words: dict[str | None, ast.expr], text: str) -> Import | Computed:
    """Return what ``__import__(name, globals, locals, fromlist, level)`` imports."""
    level = call.args[4] if len(call.args) > 4 else words.get("level", ast.Constant(0))
    listed = call.args[3] if len(call.args) > 3 else words.get("fromlist", ast.Tuple([], ast.Load()))
    if not isinstance(level, ast.Constant) or not isinstance(level.value, int):
        return Computed(call.lineno, ANYTHING)
    items = listed.elts if isinstance(listed, ast.List | ast.Tuple) else []
    return Import(level.value, text, tuple(sorted(item for item in map(_literal, items) if item)))


def _literal(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _head(node: ast.AST | None) -> str:
    """Return what is known of a computed name: the packages before the first dot that ends a literal part."""
    while isinstance(node, ast.BinOp):
        node = node.left
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        node = node.func.value
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    if isinstance(node, ast.FormattedValue):
        node = node.value
    text = _literal(node)
    if text is None:
        return "." if node is not None and _dotted(node, {}) in _OWN_PACKAGE else ANYTHING
    if text.startswith("."):
        return "."
    head, dot, _ = text.partition("%")[0].partition("{")[0].rpartition(".")
    return head if dot else ANYTHING


def _mentions(constants: Iterable[ast.Constant]) -> set[str]:
    return {
        node.value
        for node in constants
        if isinstance(node.value, str) and len(node.value) <= _LONGEST_NAME and _NAME.fullmatch(node.value)
    }


def _exports(nodes: Nodes) -> tuple[str, ...] | None:
    names: set[str] = set()
    for node in (*nodes[ast.Assign], *nodes[ast.AnnAssign], *nodes[ast.AugAssign]):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            continue
        items = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [None]
        for item in items:
            name = _literal(item)
            if name is None:
                return None
            names.add(name)
    return tuple(sorted(names))
