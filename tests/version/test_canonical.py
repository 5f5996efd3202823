"""The canonical form: the same on every Python and for every way to write it, another for every other meaning."""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from perdure.version.canonical import canonical_sha256
from perdure.version.scan import scan
from tests.version.edits import base
from tests.version.projects import identity, write

GOLDEN = Path(__file__).with_name("golden")
SOURCES = sorted(Path(__file__).parents[2].joinpath("src", "perdure").rglob("*.py"))

# Computed once. On another Python, or after a change here, they must come out the same; see CAN-2 and CAN-3.
SYNTAX = "a48f304413b24f7ab794ba6417858914dd13a10ec92cdbdf4b1ea2619c8069e1"
PROJECT = "935e5b7901a4cd37caef7e53585c4a86a54fed8a28375a81d5567bc06b64d449"


def canonical(text: str) -> str:
    found = scan(text.encode())
    assert found.parsed
    return found.canonical


def test_golden_hash_of_every_syntax() -> None:
    assert canonical((GOLDEN / "syntax.txt").read_text("utf-8")) == SYNTAX


def test_golden_hash_of_a_project(tmp_path: Path) -> None:
    assert identity(write(tmp_path, base())).sha256 == PROJECT


def test_the_golden_source_has_every_syntax() -> None:
    """Only nodes that later Pythons have, and those the parser never makes, are left out."""
    used = {type(node).__name__ for node in ast.walk(ast.parse((GOLDEN / "syntax.txt").read_text("utf-8")))}
    if sys.version_info[:2] == (3, 11):
        made = {cls for base in ast.AST.__subclasses__() for cls in [base, *base.__subclasses__()] if cls._fields}
        names = {cls.__name__ for cls in made if not cls.__name__[0].islower()}
        never = {"AugLoad", "Expression", "FunctionType", "Index", "Interactive", "Param", "Suite", "TypeIgnore"}
        never |= {"Bytes", "Ellipsis", "ExtSlice", "NameConstant", "Num", "Str"}
        assert names - used <= never


WAYS = {
    "comment": "x = 1  # why\n# more\n",
    "blank lines": "\n\n\nx = 1\n\n",
    "brackets": "x = (1)\n",
    "other line endings": "\r\nx = 1\r\n",
    "semicolon": "x = 1;\n",
    "backslash": "x = \\\n  1\n",
    "number in another base": "x = 0x1\n",
    "byte order mark": "\ufeffx = 1\n",
    "encoding": "# -*- coding: utf-8 -*-\nx = 1\n",
    "type comment": "x = 1  # type: int\n",
    "form feed": "\f\nx = 1\n",
    "no last line end": "x = 1",
}


@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS)
def test_another_way_to_write_it_is_the_same(text: str) -> None:
    assert canonical(text) == canonical("x = 1\n")


@pytest.mark.parametrize(
    "one,other",
    [
        ("x = 'a'", 'x = "a"'),
        ("x = u'a'", "x = 'a'"),
        ("x = 'ab'", "x = 'a' 'b'"),
        ("x = '\\x41'", "x = 'A'"),
        ("x = f'{a}' 'b' 'c'", "x = f'{a}bc'"),
        ("x = f'' 'b' f'{a}'", "x = f'b{a}'"),
        ("x = '''a\nb'''", "x = 'a\\nb'"),
        ("x = '''a\r\nb'''", "x = '''a\nb'''"),
        ("def f(a, b): pass", "def f(\n    a,\n    b,\n):\n    pass"),
        ("if a:\n  b\nelse:\n  if c:\n    d", "if a:\n    b\nelif c:\n    d"),
    ],
)
def test_what_python_does_not_tell_apart_is_the_same(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    "one,other",
    [
        ("'Doc.'", "'Doc!'"),
        ("x = 1", "x = 2"),
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = 0.0", "x = 0j"),
        ("x = 'a'", "x = b'a'"),
        ("x = ''", "x = None"),
        ("x = None", "x = ..."),
        ("x = 'None'", "x = None"),
        ("x = ['a', 'b']", "x = ['ab']"),
        ("x = f'{a}'", "x = f'{a!r}'"),
        ("x = f'{a}'", "x = f'{a:>1}'"),
        ("x = f'{a}{b}'", "x = f'{b}{a}'"),
        ("def f(a=1): pass", "def f(a=2): pass"),
        ("def f(a, /): pass", "def f(a): pass"),
        ("def f(*, a, b=1): pass", "def f(*, a=1, b): pass"),
        ("@a\n@b\ndef f(): pass", "@b\n@a\ndef f(): pass"),
        ("def f(): pass", "async def f(): pass"),
        ("x = {**a}", "x = {'': a}"),
        ("x = -1", "x = +1"),
        ("x = a.b", "x = a[b]"),
        ("a = b", "b = a"),
        ("f(a, b)", "f(b, a)"),
        ("f(a=1, b=2)", "f(b=2, a=1)"),
        ("from a import b", "from .a import b"),
        ("from a import b", "from a import b as c"),
        ("x: int", "x: int = None"),
        ("(x): int = 1", "x: int = 1"),
        ("match x:\n  case None: pass", "match x:\n  case True: pass"),
        ("match x:\n  case [*_]: pass", "match x:\n  case [*a]: pass"),
        ("match x:\n  case C(a=1): pass", "match x:\n  case C(b=1): pass"),
        ("return_ = 1", "yield_ = 1"),
        ("try: a\nexcept B: c", "try: a\nexcept* B: c"),
        ("x = '\\ud800'", "x = '\\ud801'"),
        ("x = 10 ** 30", "x = 1000000000000000000000000000000"),
        ("x = [a for b in c if d if e]", "x = [a for b in c if d and e]"),
        ("global_ = 1", "global_ = 1\nglobal_ = 1"),
    ],
)
def test_another_meaning_is_another_hash(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


def test_a_label_is_not_part_of_what_it_labels() -> None:
    text = "from perdure import workflow as wf\n@wf(name='o', version='{}')\nasync def o(): pass\n"
    assert canonical(text.format("1.0.0")) == canonical(text.format("2.0.0"))
    assert canonical(text) == canonical(text.replace(", version='{}'", ""))


@pytest.mark.parametrize(
    "text",
    [
        "from other import workflow\n@workflow(version='{}')\ndef o(): pass\n",
        "import perdure\n@perdure.step(version='{}')\ndef o(): pass\n",
        "import perdure\nVERSION = '{}'\n@perdure.workflow(version=VERSION)\ndef o(): pass\n",
        "import perdure\ndef workflow(version): pass\nworkflow(version='{}')\n",
    ],
)
def test_only_a_literal_of_our_own_decorator_is_a_label(text: str) -> None:
    assert canonical(text.format("1.0.0")) != canonical(text.format("2.0.0"))


def test_depth_is_no_limit() -> None:
    deep: ast.expr = ast.Name("x", ast.Load())
    for _ in range(20_000):
        deep = ast.UnaryOp(ast.Not(), deep)
    assert canonical_sha256(deep)


@pytest.mark.parametrize("data", [b"def (", b"\x00", b"x = '\xff'", b"# coding: nonsense\n", b"print 'two'\n"])
def test_what_is_no_python_goes_by_its_bytes(data: bytes) -> None:
    found = scan(data)
    assert not found.parsed
    assert found.canonical != scan(data + b" ").canonical


def test_an_old_encoding_is_read_as_it_says() -> None:
    assert scan("# coding: latin-1\nx = 'é'\n".encode("latin-1")).canonical == canonical("x = 'é'")


# ------------------------------------------------------------------------------------------------------ random edits


def test_written_anew_from_its_tree_it_is_the_same() -> None:
    for file in SOURCES[::4]:
        text = file.read_text("utf-8")
        assert canonical(ast.unparse(ast.parse(text))) == canonical(text), file


def edits(tree: ast.Module) -> list[Callable[[], object]]:
    """Return all edits of a tree, each of which changes what it means."""
    found: list[Callable[[], object]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Name():
                found.append(partial(setattr, node, "id", f"{node.id}_"))
            case ast.Attribute():
                found.append(partial(setattr, node, "attr", f"{node.attr}_"))
            case ast.arg():
                found.append(partial(setattr, node, "arg", f"{node.arg}_"))
            case ast.Constant():
                found.append(partial(setattr, node, "value", "edited" if node.value != "edited" else 1))
            case ast.BinOp():
                found.append(partial(setattr, node, "op", ast.MatMult()))
            case ast.Compare():
                found.append(partial(node.ops.append, ast.Eq()))
            case ast.Call() if node.args:
                found.append(node.args.pop)
            case ast.If():
                found.append(partial(setattr, node, "test", ast.UnaryOp(ast.Not(), node.test)))
        body = getattr(node, "body", None)
        if isinstance(body, list) and len(body) > 1:
            found.append(body.pop)
            if ast.dump(body[0]) != ast.dump(body[1]):
                found.append(partial(body.insert, 2, body[0]))
    return found


@pytest.mark.parametrize("seed", range(10))
def test_a_random_edit_is_never_missed(seed: int) -> None:
    dice = random.Random(seed)
    text = dice.choice([file for file in SOURCES if file.stat().st_size > 2000]).read_text("utf-8")
    before = canonical(text)
    for _ in range(30):
        tree = ast.parse(text)
        edit = dice.choice(edits(tree))
        edit()
        assert canonical_sha256(tree) != before, edit
