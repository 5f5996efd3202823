"""User code keeps its types: decorated functions their signatures, runs and engines the types of results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import perdure

CODE = Path(__file__).with_name("user_code.py")
SOURCE = Path(perdure.__file__).parents[1]
REPOSITORY = Path(__file__).parents[2]
pytestmark = [pytest.mark.serial, pytest.mark.timeout(360)]


def checked(tool: str, *options: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", tool, *options, str(CODE)],
        cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_knows_the_types_of_user_code() -> None:
    checked("mypy", "--strict")


def test_pyright_knows_the_types_of_user_code() -> None:
    checked("pyright", "--pythonpath", sys.executable)
