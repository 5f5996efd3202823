"""What a body may read that is frozen with its version: configuration and data files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from perdure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Frozen(NamedTuple):
    """What stays as it was while a run goes on.

    Attributes:
        config: canonical JSON of ``config`` and ``config_files``; empty for neither.
        resources: data files by path, such as ``shop/prompts/a.txt``.
        package: the top-level package or module of the workflow.
    """

    config: str = ""
    resources: Mapping[str, bytes] = {}
    package: str = ""

    def settings(self) -> tuple[Any, dict[str, Any]]:
        """Return the configuration, and what the configuration files hold by name."""
        if not self.config:
            return None, {}
        decoded = msgspec.json.decode(self.config)
        return decoded.get("config"), decoded.get("files", {})

    def resource(self, path: str) -> bytes:
        """Return a data file, by its path from the package or with the package's name before it.

        Raises:
            UsageError: there is none.
        """
        for name in (f"{self.package}/{path}", path):
            found = self.resources.get(name)
            if found is not None:
                return found
        message = f"there is no data file {path!r} in this version"
        raise UsageError(message, hint="it must lie in a first-party package, and be matched by resources=[...]")


NOTHING = Frozen()
