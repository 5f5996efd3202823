"""What a version host is told, and what it tells.

The job is one message on the host's standard input, for it holds secrets: the URL, the keys of codecs. After it the
pipe stays open: the line ``drain`` asks the host to finish what it has and to leave, and its end means that the worker
is gone. On its standard output the host answers with one line of JSON for each state.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import msgspec

from perdure.runtime.hosts.cause import Cause
from perdure.version.dependency import Lock
from perdure.version.manifest import ManifestFile

LENGTH_BYTES: Final = 8
DRAIN: Final = b"drain\n"
TRY_LATER: Final = 75
"""Exit code of a host that cannot use the database now: nothing is wrong with its versions."""


class Entry(NamedTuple):
    """One version of one workflow, to be carried by a host.

    Attributes:
        workflow: name of the workflow.
        place: module and name of its function, ``shop.flow:order``.
        version_id: of the version.
        label: of the version, for messages.
        pinned: whether dependencies are part of the version, so that others than those recorded will not do.
        config: its frozen configuration as canonical JSON; empty for none.
    """

    workflow: str
    place: str
    version_id: int
    label: str
    pinned: bool = False
    config: str = ""

    @property
    def version(self) -> str:
        """Workflow and label, as messages name it."""
        return f"{self.workflow}@{self.label}"


class Job(msgspec.Struct, frozen=True):
    """All that a host must know. Plain data.

    Attributes:
        release: what messages call the release, such as ``71``.
        tree: SHA-256 that names the tree of files.
        manifest: the files.
        roots: names of its first-party packages and modules.
        entries: the versions to carry.
        refused: versions of the release that nobody may load, and why; not for the host.
        cache: folder to unpack into; made private to this user.
        url: of the database.
        settings: settings of the engine by name, ``codecs`` among them.
        parent: id of the worker that starts the host.
        blobs: a folder with contents of files, each named by its SHA-256; empty for the database.
        elsewhere: names of first-party packages and modules of other versions, with a version that has each.
        deployed: folders of first-party code as it is deployed.
        path: the path to find other modules on; the interpreter's own where there is none.
        bootstrap: module and function that sets the application up; empty for none.
        python: minor version of the interpreter that was recorded.
        distributions: versions of the distributions that were recorded.
        lock: the lock file that was recorded: for whoever starts the host, not for the host.
        unbuilt: why no environment of its own could be made for the host, where that was tried.
        environment: variables to set before anything of the version is loaded.
        host_idle_s: how long a host stays with nothing to do.
        orphaned_s: how long it may go on once its worker is gone.
    """

    release: str
    tree: str
    manifest: dict[str, ManifestFile]
    roots: list[str]
    entries: list[Entry]
    cache: str
    url: str
    settings: dict[str, Any]
    parent: str | None = None
    blobs: str = ""
    elsewhere: dict[str, str] = {}
    deployed: list[str] = []
    path: list[str] | None = None
    bootstrap: str = ""
    python: str = ""
    distributions: dict[str, str] = {}
    lock: Lock | None = None
    unbuilt: str = ""
    environment: dict[str, str] = {}
    host_idle_s: float = 30.0
    orphaned_s: float = 3.0
    refused: dict[int, Cause] = {}

    @property
    def version(self) -> str:
        """What messages call it all: the version, if there is one only."""
        return self.entries[0].version if len(self.entries) == 1 else f"release {self.release}"


class Told(msgspec.Struct, frozen=True):
    """What a host tells.

    Attributes:
        state: ``ready`` to claim; ``failed`` to load; ``idle``, so that it leaves.
        versions: ids of the versions it is about.
        cause: why it failed.
        modules: all modules that are loaded and are not the version's own, in the order in which they were: what
            another process must import to be as warm.
        notices: what differs from what was recorded.
    """

    state: Literal["ready", "failed", "idle"]
    versions: list[int] = []
    cause: Cause | None = None
    modules: list[str] = []
    notices: list[str] = []


def framed(job: Job) -> bytes:
    """Return a job as it is sent."""
    data = msgspec.msgpack.encode(job)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def read_job(data: bytes) -> Job:
    """Return the job that was sent, without its length."""
    return msgspec.msgpack.decode(data, type=Job)


def line(told: Told) -> bytes:
    """Return what a host tells as it is sent."""
    return msgspec.json.encode(told) + b"\n"


def read_line(data: bytes) -> Told:
    """Return what was told.

    Raises:
        msgspec.DecodeError: it is something else.
    """
    return msgspec.json.decode(data, type=Told)
