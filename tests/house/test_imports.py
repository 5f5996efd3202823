"""What every process that uses the library loads before it does anything: a worker, a command, a child of a pool.

Time itself is not measured here: what takes it is counted.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = {
    "argparse", "cryptography", "distutils", "doctest", "email", "http", "importlib.metadata", "logging.config",
    "multiprocessing", "pdb", "psycopg", "pydantic", "pydoc", "pymysql", "setuptools", "unittest", "urllib.request",
    "xml", "zipfile",
}  # fmt: skip
"""What takes milliseconds to import, and is not needed by everybody."""

MOST_DATA_CLASSES = 5
"""Python writes and compiles six methods of each: more than a millisecond, where a struct takes a thirtieth of one."""

IMPORT = "import perdure"
HELP = """
import click
from perdure.cli.main import perdure

context = click.Context(perdure)
assert [perdure.get_command(context, name).get_short_help_str() for name in perdure.list_commands(context)]
"""
LOADED = """
import sys

print(*sys.modules)
"""
DATA_CLASSES = """
import sys

modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "perdure"}
for name, module in modules.items():
    for one in vars(module).values():
        if isinstance(one, type) and "__dataclass_fields__" in vars(one) and one.__module__ == name:
            print(one.__qualname__)
"""


def said(*code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", "".join(code)], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("begin", [IMPORT, HELP], ids=["import", "help"])
def test_what_every_process_loads_is_not_slow(begin: str) -> None:
    loaded = said(begin, LOADED)
    assert "perdure.api.engine" in loaded
    assert not SLOW & loaded


def test_the_library_makes_few_data_classes_when_it_is_imported() -> None:
    assert len(said(IMPORT, DATA_CLASSES)) <= MOST_DATA_CLASSES
