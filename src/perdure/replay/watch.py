"""Stops what a body does outside its steps: an audit hook that is armed for one thread while a body runs on it.

The hook is installed once per process, at the first check, and cannot be removed; on other threads it does nothing.
Refused are sockets, processes, threads, writes to files, and changes of what the process shares: its folder and its
environment. What an import or the logging package does is not the body's doing, although it happens in its place.
"""

from __future__ import annotations

import logging
import os
import sys
import sysconfig
import threading
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NAMES = """
    _thread.start_joinable_thread _thread.start_new_thread
    ftplib.connect ftplib.sendcmd http.client.connect imaplib.open nntplib.connect poplib.connect smtplib.connect
    smtplib.send telnetlib.Telnet.open urllib.Request webbrowser.open
    open os.chdir os.chmod os.chown os.exec os.fork os.forkpty os.kill os.killpg os.link os.mkdir os.posix_spawn
    os.putenv os.remove os.removexattr os.rename os.rmdir os.setxattr os.spawn os.startfile os.symlink os.system
    os.truncate os.unsetenv os.utime pty.spawn shutil.chown shutil.copyfile shutil.copymode shutil.copystat
    shutil.copytree shutil.make_archive shutil.move shutil.rmtree shutil.unpack_archive signal.pthread_kill
    socket.__new__ socket.bind socket.connect socket.getaddrinfo socket.gethostbyaddr socket.gethostbyname
    socket.getnameinfo socket.sendmsg socket.sendto socket.sethostname sqlite3.connect subprocess.Popen syslog.openlog
    syslog.syslog tempfile.mkdtemp tempfile.mkstemp
"""
_REFUSED = frozenset(_NAMES.split())
_SHOWN = 120
_local = threading.local()
_install = threading.Lock()
_installed = False
_FOLDERS = ("stdlib", "platstdlib", "purelib", "platlib")
_PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"
_CHECK = f"{__package__}.check"
"""Below this module's frames the stack is no longer the body's."""


class SideEffect(BaseException):
    """Raised in a body where it did something outside a step. No `Exception`, so that few bodies catch it."""


class Watch:
    """Watches one body.

    Attributes:
        found: the first thing it did outside a step, with its place; empty if nothing.
        is_muted: whether what is refused is no longer noted: the body is being unwound.
    """

    def __init__(self) -> None:
        global _installed  # noqa: PLW0603 - a hook cannot be removed, so it is there once
        self.found: str = ""
        self.is_muted: bool = False
        with _install:
            if not _installed:
                _audit_threads()
                sys.addaudithook(_hook)
                _installed = True

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Refuse effects on this thread meanwhile."""
        before = getattr(_local, "watch", None)
        _local.watch = self
        try:
            yield
        finally:
            _local.watch = before

    def meet(self, event: str, args: tuple[Any, ...]) -> None:
        """Judge an audit event.

        Raises:
            SideEffect: the body must not do this; RuntimeError where it is a thread.
        """
        if _is_harmless(event, args):
            return
        frame = sys._getframe(2)  # noqa: SLF001 - the stack is the only witness of who does it
        if _is_excused(frame):
            return
        what = _describe(event, args)
        if not self.is_muted and not self.found:
            self.found = f"{what} ({place_of(_culprit(frame))})"
        # `Thread.start` puts itself in order again after an Exception only.
        raise RuntimeError(what) if event.startswith("_thread.") else SideEffect(what)


def _audit_threads() -> None:
    """Let the start of a thread be audited before Python 3.12 too, where it is audited by itself."""
    if sys.version_info >= (3, 12):
        return
    threads: Any = threading
    start = threads._start_new_thread  # noqa: SLF001 - what `Thread.start` calls

    def audited(*args: Any) -> Any:
        sys.audit("_thread.start_new_thread", *args)
        return start(*args)

    threads._start_new_thread = audited  # noqa: SLF001 - the same


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event not in _REFUSED:
        return
    watch: Watch | None = getattr(_local, "watch", None)
    if watch is None:
        return
    _local.watch = None  # what is done here is not the body's doing
    try:
        watch.meet(event, args)
    finally:
        _local.watch = watch


def _is_harmless(event: str, args: tuple[Any, ...]) -> bool:
    if event == "open":
        _, mode, flags = args
        if isinstance(mode, str) and set(mode) & set("wax+"):
            return False
        return not (isinstance(flags, int) and flags & _WRITING)
    return event == "sqlite3.connect" and args[0] in {":memory:", ""}


def _is_excused(frame: FrameType | None) -> bool:
    """Whether an import or the logging package does it, somewhere between here and the check."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith("<frozen importlib.") or file == logging.__file__:
            return True
        if frame.f_globals.get("__name__") == _CHECK:
            return False
        frame = frame.f_back
    return False


def _culprit(frame: FrameType) -> FrameType:
    """Return the innermost frame that is neither the standard library's, nor an installed package's, nor ours."""
    each: FrameType | None = frame
    while each is not None:
        if is_users(each.f_code.co_filename):
            return each
        each = each.f_back
    return frame


def is_users(file: str) -> bool:
    """Whether a file holds code of the application."""
    return not file.startswith(("<frozen ", _PACKAGE, *_libraries()))


@cache
def _libraries() -> tuple[str, ...]:
    return tuple(f"{Path(sysconfig.get_path(name))}{os.sep}" for name in _FOLDERS)


def place_of(frame: FrameType) -> str:
    """Return file and line of a frame."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _describe(event: str, args: tuple[Any, ...]) -> str:
    shown = [repr(arg) for arg in args if isinstance(arg, str | bytes | int | tuple | list) and arg != -1]
    text = ", ".join(shown[:2] if event == "open" else shown)
    return f"{event}({text if len(text) <= _SHOWN else text[: _SHOWN - 1] + '…'})"
