"""Running the command line, in this process where it is fast and in one of its own where it matters."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from perdure.cli import main
from tests.process import Child, Spawner

FLOWS = Path(__file__).with_name("flows.py")


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> object:
        """Its output, as the one JSON document it is."""
        return msgspec.json.decode(self.out)


class Shell:
    """Runs commands with one database."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], spawn: Spawner) -> None:
        self.folder = folder
        self.db = f"sqlite:///{folder / 'runs.db'}"
        self._capsys = capsys
        self.spawn = spawn

    def __call__(self, *words: object) -> Told:
        """Run a command in this process."""
        self._capsys.readouterr()
        code = main.run([str(word) for word in words])
        shown = self._capsys.readouterr()
        return Told(code=code, out=shown.out, err=shown.err)

    def process(self, *words: object, env: dict[str, str] | None = None) -> Child:
        """Run a command in a process of its own."""
        given = {"PERDURE_DB": self.db} | (env or {})
        return self.spawn(sys.executable, "-m", "perdure", *map(str, words), env=given, folder=self.folder)


@pytest.fixture
def shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spawn: Spawner, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    """Give a shell in a new folder, whose database does not exist yet."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    path = list(sys.path)
    shell = Shell(tmp_path, capsys, spawn)
    monkeypatch.setenv("PERDURE_DB", shell.db)
    monkeypatch.chdir(tmp_path)
    yield shell
    root.handlers[:] = before
    root.setLevel(level)
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(f"{tmp_path}/"):
            del sys.modules[name]
