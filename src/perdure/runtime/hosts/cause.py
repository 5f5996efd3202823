"""Why a version cannot run here: told by a host or found by its supervisor, and shown as an error with its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from perdure.errors import (
    EnvironmentMismatch,
    HostCrashed,
    SignatureInvalid,
    SnapshotCorrupt,
    VersionError,
    VersionLoadFailed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class Cause(NamedTuple):
    """What stands in the way.

    Attributes:
        code: of the error.
        version: what cannot run, such as ``order@1.3.0``, or ``release 71``.
        detail: what happened, without saying to whom.
        unbuilt: why no environment of its own could be made for it, where that was tried.
        unimported: whether something could not be imported that is not of the version itself.
    """

    code: str
    version: str
    detail: str
    unbuilt: str = ""
    unimported: bool = False

    def error(self, runs: int | None = None) -> VersionError:
        """Return it as an error that says what to do.

        Args:
            runs: how many runs are parked for it, where that is known.
        """
        parked = (
            "Its runs are parked" if runs is None else "1 run is parked" if runs == 1 else f"{runs} runs are parked"
        )
        text = _TEXTS.get(self.code, "{detail}").format(
            version=self.version, detail=self.detail, parked=parked, remedy=_INSTALL if self.unbuilt else _ALLOW,
            unbuilt=f" No environment could be made for it: {self.unbuilt}." if self.unbuilt else "",
        )  # fmt: skip
        return _CLASSES.get(self.code, VersionError)(text)


_CLASSES: Final[Mapping[str, type[VersionError]]] = {
    one.code: one for one in (EnvironmentMismatch, HostCrashed, SignatureInvalid, SnapshotCorrupt, VersionLoadFailed)
}
_ALLOW: Final = 'Allow environments="uv", install it'
_INSTALL: Final = "Make it obtainable, or install it here"
_TEXTS: Final[Mapping[str, str]] = {
    VersionLoadFailed.code: (
        "{version} could not be loaded: {detail}.{unbuilt} {parked}. "
        "Fix the environment (perdure versions host-env), or upgrade them."
    ),
    EnvironmentMismatch.code: ("{version} needs {detail}.{unbuilt} {parked}. {remedy}, or upgrade them."),
    HostCrashed.code: "the host of {version} {detail}; its runs are parked.",
}
