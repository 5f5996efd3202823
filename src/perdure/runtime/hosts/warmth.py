"""What a worker and its fork server say to each other. See `perdure.hosting.forking`."""

from __future__ import annotations

from typing import Literal

import msgspec


class Warmth(msgspec.Struct, frozen=True):
    """What a fork server imports.

    Attributes:
        modules: names of modules, in the order in which they are imported.
        first_party: names of first-party packages and modules of all versions: never imported.
        deployed: folders of first-party code as it is deployed.
        path: the path to find modules on; the interpreter's own where there is none.
    """

    modules: list[str]
    first_party: list[str]
    deployed: list[str] = []
    path: list[str] | None = None


class News(msgspec.Struct, frozen=True):
    """What a fork server tells.

    Attributes:
        what: ``warm``: it takes requests; ``unfit``: a module started a thread, so it ends; ``forked``, in the order
            of the requests; ``ended``.
        module: the culprit.
        pid: of the host.
        code: its exit code; negative for a signal.
    """

    what: Literal["warm", "unfit", "forked", "ended"]
    module: str = ""
    pid: int = 0
    code: int = 0
