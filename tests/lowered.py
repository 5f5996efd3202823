"""Run a command as user nobody. Used as a script: `python lowered.py COMMAND ARGUMENT...`.

Root may write anywhere, so a read-only folder does not bind it, and database servers refuse to run as root. The
command keeps one right of root where the system grants it: to read. An interpreter below root's home still starts.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys

SET_KEEP_CAPABILITIES, AMBIENT, AMBIENT_RAISE = 8, 47, 2
CAPABILITY_VERSION_3 = 0x20080522
READ_AND_SEARCH = 2


def keep_reading() -> None:
    """Keep the right to read through the change of user and through exec. Has no effect where it is not granted."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    bit = 1 << READ_AND_SEARCH
    sets = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
    if libc.capset(header, sets) == 0:
        libc.prctl(AMBIENT, AMBIENT_RAISE, READ_AND_SEARCH, 0, 0)


def become_nobody() -> None:
    """Give up being root for good."""
    nobody = pwd.getpwnam("nobody")
    linux = sys.platform.startswith("linux")
    if linux:
        ctypes.CDLL(None).prctl(SET_KEEP_CAPABILITIES, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
    if linux:
        keep_reading()


def main(command: list[str]) -> None:
    become_nobody()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
