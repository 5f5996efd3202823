"""Start processes that cannot outlive their test, and wait for what they say, always with a limit."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PATIENCE_S = 40.0
LOWERED = Path(__file__).with_name("lowered.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """What a process left behind."""

    code: int
    out: str
    err: str


class Child:
    """One process, in its own process group, with its output kept."""

    def __init__(self, argv: tuple[str, ...], env: Mapping[str, str], folder: Path, errors: Path) -> None:
        self.argv = argv
        self._errors = errors
        self._seen = b""
        self._unread = 0
        with errors.open("wb") as sink:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                argv,
                env=dict(env),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=sink,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def out(self) -> str:
        """Give what was read of standard output so far."""
        return self._seen.decode("utf-8", "replace")

    @property
    def err(self) -> str:
        return self._errors.read_text("utf-8", "replace")

    def expect(self, text: str, within: float = PATIENCE_S) -> str:
        """Wait until the process prints a line that holds the text; give that line. Lines before it are passed over."""
        deadline = time.monotonic() + within
        while True:
            while b"\n" in self._seen[self._unread :]:
                end = self._seen.index(b"\n", self._unread)
                line, self._unread = self._seen[self._unread : end].decode("utf-8", "replace"), end + 1
                if text in line:
                    return line
            if not self._read(deadline):
                raise AssertionError(self._story(f"never printed {text!r}"))

    def listen(self, seconds: float) -> None:
        """Read what the process prints for a time. One that nobody reads from waits, once the pipe is full."""
        deadline = time.monotonic() + seconds
        while self._read(deadline):
            pass

    def finish(self, within: float = PATIENCE_S) -> Finished:
        """Wait for the end of the process."""
        deadline = time.monotonic() + within
        while self._read(deadline):
            pass
        try:
            code = self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(self._story("did not end in time")) from None
        return Finished(code=code, out=self.out, err=self.err)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process alone."""
        self.process.send_signal(number)

    def destroy(self) -> None:
        """Kill the process and all of its group, and reap it. Once: later its number may be another group's."""
        if self._pipe().closed:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._pipe().close()
        self.process.wait(PATIENCE_S)

    def _pipe(self) -> IO[bytes]:
        pipe = self.process.stdout
        if pipe is None:
            raise AssertionError(self._story("has no output pipe"))
        return pipe

    def _read(self, deadline: float) -> bool:
        """Read what is there, or wait for it until the deadline. False at the end of output or of time."""
        pipe = self._pipe()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return False
        chunk = os.read(pipe.fileno(), 65536)
        self._seen += chunk
        return bool(chunk)

    def _story(self, what: str) -> str:
        state = self.process.poll()
        return (
            f"{' '.join(self.argv)} {what}\nexit code: {'still running' if state is None else state}\n"
            f"--- output\n{self.out}\n--- errors\n{self.err}"
        )


class Spawner:
    """Start processes; end all of them when the test ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[Child] = []

    def __call__(
        self,
        *argv: str | Path,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        lowered: bool = False,
        measured: bool = True,
    ) -> Child:
        """Start a command.

        `env` is added to the environment; `lowered` runs it as nobody when the test is root. A process that cannot
        write files must not be `measured`: it would complain that it cannot keep its coverage. A lowered one never is.
        """
        words = tuple(map(str, argv))
        if lowered and os.geteuid() == 0:
            words = (sys.executable, "-I", "-S", str(LOWERED), *words)
        errors = self._folder / f"child-{len(self._children)}.err"
        environment = os.environ | {"PYTHONUNBUFFERED": "1"} | dict(env or {})
        if lowered or not measured:
            environment.pop("COVERAGE_PROCESS_CONFIG", None)
        child = Child(words, environment, folder or self._folder, errors)
        self._children.append(child)
        return child

    def python(self, code: str, *argv: str, env: Mapping[str, str] | None = None, lowered: bool = False) -> Child:
        """Start this interpreter on a piece of code."""
        return self(sys.executable, "-c", code, *argv, env=env, lowered=lowered)

    def close(self) -> None:
        while self._children:
            self._children.pop().destroy()


class Unprivileged:
    """A folder that user nobody owns, and processes that run as that user. As any other user: that user's own."""

    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-test-"))
        self.own(self.folder)

    def own(self, path: Path) -> None:
        """Hand a file or folder to the user the processes run as."""
        if os.geteuid() == 0:
            shutil.chown(path, "nobody")

    def __call__(self, *argv: str | Path, env: Mapping[str, str] | None = None) -> Child:
        home = {"HOME": str(self.folder)}
        return self._spawner(*argv, env=home | dict(env or {}), folder=self.folder, lowered=True)

    def close(self) -> None:
        for folder in [self.folder, *self.folder.rglob("*/")]:
            folder.chmod(0o700)
        shutil.rmtree(self.folder)
