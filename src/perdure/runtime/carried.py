"""The versions of workflows that this process has the code of, and so may run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perdure.model.code import code_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Version(NamedTuple):
    """A version of a workflow as this process knows it: its id in the database, and the label it was registered by."""

    id: int
    label: str


class Carried(NamedTuple):
    """What was registered when the process began.

    Attributes:
        versions: workflow to version, of the workflows that are bound to one.
        is_host: whether it is a version host. It takes no runs that are bound to none: those are for what is deployed.
    """

    versions: Mapping[str, Version]
    is_host: bool = False

    def codes(self, workflows: Iterable[str]) -> tuple[str, ...]:
        """Return what runs may need of it, for these of its workflows."""
        bound = [code_of(name, self.versions[name].id) for name in workflows if name in self.versions]
        return (*bound, *(() if self.is_host else (code_of(name) for name in workflows)))


NOTHING = Carried({})
"""No workflow is bound to a version."""
