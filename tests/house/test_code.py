"""Hold the code to the budgets and bans of the house style. Each rule is also tried on a snippet that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatch

import pytest

from tests.house import rules
from tests.house.rules import Finding, Source
from tests.house.tree import sources

# A file here may have more than 400 lines (never more than 600). Path -> reason.
LONG_FILES: dict[str, str] = {}

# A class here may have more than 15 public methods. "path:class" -> reason.
WIDE_CLASSES: dict[str, str] = {
    "src/perdure/api/versions.py:Versions": "all that people do to versions, a method each, under one name",
    "src/perdure/api/sync_versions.py:SyncVersions": "the methods of `Versions`",
    "src/perdure/store/instrumented.py:Instrumented": "the seam's fifteen methods, and what it counted",
    "src/perdure/store/server/engine.py:ServerStore": "the seam's fifteen methods, and what transactions of users need",
    "src/perdure/store/sqlite/engine.py:SqliteStore": "the seam's fifteen methods, and what SQLite finds wrong",
    "src/perdure/testing/faults.py:FaultyStore": "the seam's fifteen methods, and how often they were crossed",
}

# What may turn a name, text or bytes into code, and where. Pattern -> (names, reason).
CODE_ALLOWED: dict[str, tuple[frozenset[str], str]] = {
    "src/perdure/cli/main.py": (frozenset({"importlib.import_module"}), "finds command groups by folder"),
    "src/perdure/replay/code.py": (
        frozenset({"importlib.import_module"}),
        "loads the modules whose workflows the process that checks was started for",
    ),
    "src/perdure/hosting/forking.py": (
        frozenset({"importlib.import_module"}),
        "imports the libraries that a version host has imported, never what is first-party",
    ),
    "src/perdure/hosting/load.py": (
        frozenset({"importlib.import_module"}),
        "runs stored code: what its process is for, after every file was checked",
    ),
    "src/perdure/cli/target.py": (frozenset({"importlib.import_module"}), "loads the target the user typed"),
    "src/perdure/store/base.py": (frozenset({"importlib.import_module"}), "finds a backend by the URL's scheme"),
    "src/perdure/store/bulk.py": (frozenset({"importlib.import_module"}), "finds a backend by the URL's scheme"),
    "src/perdure/demo/worker.py": (frozenset({"importlib.import_module"}), "loads the shop that is deployed"),
    "src/perdure/verify/database.py": (frozenset({"importlib.import_module"}), "finds a reader by the URL's scheme"),
    "src/perdure/guard/link.py": (
        frozenset({"importlib.import_module"}),
        "finds a driver by the package that the connection's class comes from",
    ),
    "src/perdure/bench/site.py": (
        frozenset({"importlib.import_module"}),
        "finds a place to measure, by backend",
    ),
    "src/perdure/codec/base.py": (frozenset({"importlib.import_module"}), "finds a codec by its name in the settings"),
    "src/perdure/codec/pickle.py": (frozenset({"pickle"}), "the opt-in codec"),
}

# Folders whose tests pace real processes and may sleep, or sleep in virtual time.
SLEEP_ALLOWED = ("tests/cases/", "tests/faults/", "tests/perf/")

CODE = ("src", "tests")


def listing(findings: Iterator[Finding] | list[Finding]) -> str:
    return "\n".join(map(str, findings))


def allowed_code(path: str) -> frozenset[str]:
    return frozenset().union(*(names for pattern, (names, _) in CODE_ALLOWED.items() if fnmatch(path, pattern)))


def snippet(text: str, path: str = "src/perdure/model/run.py") -> Source:
    return Source.parse(path, text)


def test_every_file_is_within_its_budget() -> None:
    long = [finding for source in sources(*CODE) for finding in rules.file_length(source, rules.FILE_SOFT)]
    assert not listing([finding for finding in long if finding.path not in LONG_FILES])
    assert not listing(finding for source in sources(*CODE) for finding in rules.file_length(source, rules.FILE_HARD))


def test_no_file_is_excused_without_need() -> None:
    long = {finding.path for source in sources(*CODE) for finding in rules.file_length(source, rules.FILE_SOFT)}
    assert set(LONG_FILES) <= long
    assert all(LONG_FILES.values())


def test_every_function_is_within_its_budget() -> None:
    limit = rules.FUNCTION_HARD
    assert not listing(finding for source in sources(*CODE) for finding in rules.function_length(source, limit))


def test_no_class_is_too_wide() -> None:
    found = [(source, finding) for source in sources("src") for finding in rules.class_width(source)]
    excused = [f"{source.path}:{finding.what.split()[0]}" for source, finding in found]
    assert set(WIDE_CLASSES) <= set(excused)
    assert not listing(finding for (_, finding), key in zip(found, excused, strict=True) if key not in WIDE_CLASSES)


def test_every_module_is_named_for_a_responsibility() -> None:
    assert not listing(finding for source in sources(*CODE) for finding in rules.module_name(source))


def test_no_function_imports_first_party_code() -> None:
    assert not listing(finding for source in sources("src") for finding in rules.inner_imports(source, "perdure"))


def test_no_text_becomes_code() -> None:
    assert not listing(
        finding for source in sources("src") for finding in rules.code_from_outside(source, allowed_code(source.path))
    )


def test_tests_wait_for_signals_and_do_not_sleep() -> None:
    bound = [source for source in sources("tests") if not source.path.startswith(SLEEP_ALLOWED)]
    assert bound
    assert not listing(finding for source in bound for finding in rules.sleeps(source))


# ------------------------------------------------------------------------------------ the rules themselves have teeth


def methods(count: int, prefix: str = "m") -> str:
    return "".join(f"    def {prefix}{number}(self): ...\n" for number in range(count))


LONG_DOCSTRING = 'def f():\n    """One.\n' + "\n" * 100 + '    """\n    return 1\n'

TEETH: dict[str, tuple[Callable[[Source], Iterator[Finding]], str]] = {
    "file": (lambda source: rules.file_length(source, rules.FILE_SOFT), "x = 1\n" * 401),
    "file, hard": (lambda source: rules.file_length(source, rules.FILE_HARD), "x = 1\n" * 601),
    "function": (lambda source: rules.function_length(source, rules.FUNCTION_HARD), "def f():\n" + "    x = 1\n" * 80),
    "async function": (
        lambda source: rules.function_length(source, rules.FUNCTION_HARD),
        "class C:\n    async def f(self):\n" + "        x = 1\n" * 80,
    ),
    "class": (rules.class_width, "class C:\n" + methods(16)),
    "inner import": (lambda source: rules.inner_imports(source, "perdure"), "def f():\n    import perdure.api\n"),
    "inner from": (
        lambda source: rules.inner_imports(source, "perdure"),
        "async def f():\n    from perdure import api\n",
    ),
    "inner relative": (lambda source: rules.inner_imports(source, "perdure"), "def f():\n    from . import api\n"),
    "eval": (rules.code_from_outside, "eval('1')\n"),
    "exec by another name": (rules.code_from_outside, "run = exec\nrun('1')\n"),
    "builtins": (rules.code_from_outside, "import builtins as b\nb.eval('1')\n"),
    "compile": (rules.code_from_outside, "compile('1', 'x', 'eval')\n"),
    "__import__": (rules.code_from_outside, "__import__('os')\n"),
    "pickle": (rules.code_from_outside, "import pickle as p\n"),
    "pickle, in part": (rules.code_from_outside, "from pickle import loads\n"),
    "marshal, in a function": (rules.code_from_outside, "def f():\n    import marshal\n"),
    "yaml": (rules.code_from_outside, "import yaml\nyaml.load('1')\n"),
    "yaml, in part": (rules.code_from_outside, "from yaml import load as safe\nsafe('1')\n"),
    "import by name": (rules.code_from_outside, "from importlib import import_module as im\nim('os')\n"),
    "sleep": (rules.sleeps, "import time\ntime.sleep(1)\n"),
    "sleep, in part": (rules.sleeps, "from time import sleep as nap\nnap(1)\n"),
}

HARMLESS: dict[str, tuple[Callable[[Source], Iterator[Finding]], str]] = {
    "a file at its limit": (lambda source: rules.file_length(source, rules.FILE_SOFT), "x = 1\n" * 400),
    "a long docstring": (lambda source: rules.function_length(source, rules.FUNCTION_SOFT), LONG_DOCSTRING),
    "tests in a class": (rules.class_width, "class C:\n" + methods(16, "test_m")),
    "private methods": (rules.class_width, "class C:\n" + methods(16, "_m")),
    "an event loop": (rules.class_width, "class C(asyncio.AbstractEventLoop):\n" + methods(40)),
    "an import at the top": (lambda source: rules.inner_imports(source, "perdure"), "from perdure import api\n"),
    "an optional library": (lambda source: rules.inner_imports(source, "perdure"), "def f():\n    import rich\n"),
    "a pattern": (rules.code_from_outside, "import re\nre.compile('x')\n"),
    "safe yaml": (rules.code_from_outside, "import yaml\nyaml.safe_load('1')\n"),
    "our own pickle codec": (rules.code_from_outside, "from perdure.codec import pickle\n"),
    "a durable sleep": (rules.sleeps, "import asyncio\nasync def f(): await asyncio.sleep(1)\n"),
}


@pytest.mark.parametrize("rule,text", TEETH.values(), ids=TEETH)
def test_rule_finds_a_breach(rule: Callable[[Source], Iterator[Finding]], text: str) -> None:
    assert list(rule(snippet(text)))


@pytest.mark.parametrize("rule,text", HARMLESS.values(), ids=HARMLESS)
def test_rule_passes_what_is_harmless(rule: Callable[[Source], Iterator[Finding]], text: str) -> None:
    assert not listing(rule(snippet(text)))


@pytest.mark.parametrize("path", ["src/perdure/utils.py", "src/perdure/_helpers.py", "tests/common/x.py"])
def test_rule_finds_a_banned_name(path: str) -> None:
    assert list(rules.module_name(snippet("", path)))


def test_an_exception_holds_for_its_file_and_its_name_only() -> None:
    assert allowed_code("src/perdure/codec/pickle.py") == {"pickle"}
    assert not allowed_code("src/perdure/codec/json.py")
    both = snippet("import pickle\neval('1')\n")
    assert [finding.line for finding in rules.code_from_outside(both, {"pickle"})] == [2]
