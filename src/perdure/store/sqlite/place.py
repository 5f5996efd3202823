"""Where the database file is, and whether that place can hold one safely.

Everything here looks, and changes nothing. The file itself is never opened here: closing it would drop the locks
that SQLite holds on it in this process.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perdure.errors import UsageError
from perdure.model.url import shown_url

NETWORK = re.compile(
    r"^(nfs\d?|cifs|smb\d?|smbfs|9p|afs|ceph|lustre|gpfs|glusterfs|beegfs|ocfs2|gfs2|orangefs|ncpfs|davfs"
    r"|fuse\.(sshfs|s3fs|glusterfs|rclone|davfs2?|gcsfuse|ceph(-fuse)?|juicefs|blobfuse2?|nfs.*|smb.*|curlftpfs))$"
)
"""File systems that several machines may mount: their locks and shared memory do not reach from one to the other."""


def path_of(url: str) -> Path | None:
    """Return the file that a ``sqlite:`` URL names, or None for the store in memory.

    Raises:
        UsageError: the URL names a host, or has parts that mean nothing here.
    """
    parts = urlsplit(url)
    if parts.netloc:
        message = f"{shown_url(url)}: a file has no host; write sqlite:///relative.db or sqlite:////absolute.db"
        raise UsageError(message)
    if parts.query or parts.fragment:
        message = f"{shown_url(url)}: options after '?' or '#' mean nothing here"
        raise UsageError(message)
    name = unquote(parts.path.removeprefix("/"))
    if name in {"", ":memory:"}:
        return None
    if "\0" in name or name.endswith("/"):
        message = f"{shown_url(url)}: not a file name"
        raise UsageError(message)
    return Path(name)


def check(path: Path, *, read_only: bool, must_exist: bool = False) -> Path:
    """Return the real path of a database file, existing or not, or say why there cannot be one.

    Links in the folder's path are followed, a link in place of the file is not: somebody else may own its target.

    Raises:
        UsageError: with one line that says what to do.
    """
    try:
        folder = path.absolute().parent.resolve(strict=True)
        status = os.stat_result(os.lstat(folder / path.name)) if os.path.lexists(folder / path.name) else None
    except FileNotFoundError:
        message = f"{path}: the folder {path.absolute().parent} does not exist"
        raise UsageError(message, hint="create it first") from None
    except OSError as error:
        message = f"{path}: {error.strerror or error}"
        raise UsageError(message) from error
    file = folder / path.name
    _check_kind(path, status, must_exist=must_exist or read_only)
    _check_rights(path, file, exists=status is not None, read_only=read_only)
    kind = file_system(str(folder))
    if NETWORK.match(kind):
        message = f"{path}: on a network file system ({kind}), where SQLite cannot lock"
        raise UsageError(message, hint="use a local disk, or a database server")
    return file


def _check_kind(path: Path, status: os.stat_result | None, *, must_exist: bool) -> None:
    if status is None:
        if must_exist:
            message = f"{path}: no such file"
            raise UsageError(message, hint="name the database with --db or PERDURE_DB")
        return
    if stat.S_ISLNK(status.st_mode):
        message = f"{path}: a symbolic link"
        raise UsageError(message, hint="name the file it points to")
    if stat.S_ISDIR(status.st_mode):
        message = f"{path}: a folder, not a file"
        raise UsageError(message)
    if not stat.S_ISREG(status.st_mode):
        message = f"{path}: not a regular file"
        raise UsageError(message)
    if status.st_nlink > 1:
        # SQLite derives the names of -wal and -shm from the path: by two names it would be two logs of one file.
        message = f"{path}: has another name (hard link), which SQLite cannot share safely"
        raise UsageError(message)


def _check_rights(path: Path, file: Path, *, exists: bool, read_only: bool) -> None:
    if exists and not os.access(file, os.R_OK):
        message = f"{path}: not readable by this user"
        raise UsageError(message)
    if read_only:
        return
    if exists and not os.access(file, os.W_OK):
        message = f"{path}: read-only for this user"
        raise UsageError(message)
    if not os.access(file.parent, os.W_OK | os.X_OK):
        message = f"{path}: the folder {file.parent} is not writable, and SQLite keeps its log beside the file"
        raise UsageError(message)


def file_system(folder: str, mounts: str | None = None) -> str:
    """Return the type of the file system a folder is on; empty where the platform does not tell.

    Args:
        folder: a real, absolute path.
        mounts: text in the format of ``/proc/self/mountinfo``, read from there by default.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
        except OSError:
            return ""
    best, kind = -1, ""
    for line in mounts.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        inside = folder == point or folder.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:  # of two mounts on one point the later one is on top
            best, kind = len(point), after.split(" ", 1)[0]
    return kind
