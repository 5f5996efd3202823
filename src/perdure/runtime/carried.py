"""The versions of workflows that this process has the code of, and so may run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from perdure.kernel.frozen import Frozen
from perdure.model.code import code_of
from perdure.version.config import freeze

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.kernel.definition import WorkflowDefinition
    from perdure.loading.watching import Watch


class Version(NamedTuple):
    """A version of a workflow, as this process has it.

    Attributes:
        id: its number in the database.
        label: what it was registered by.
        config: its frozen configuration as canonical JSON; empty for none.
    """

    id: int
    label: str
    config: str = ""

    @property
    def binding(self) -> tuple[int, str]:
        """What a run is bound to."""
        return self.id, self.label


class Carried(NamedTuple):
    """What was registered when the process began.

    Attributes:
        versions: workflow to version, of the workflows that are bound to one.
        resources: the data files of the versions, by path, as they were registered.
        roots: first-party names of the release.
        folders: where its first-party code lies.
        watch: keeps this process from importing first-party code that is not the registered one.
        displaced: whether other code was put in the place of this on disk: nothing more may begin here.
        is_host: whether it is a version host. It takes no runs that are bound to none: those are for what is deployed.
    """

    versions: Mapping[str, Version]
    resources: Mapping[str, bytes] = {}
    is_host: bool = False
    roots: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    watch: Watch | None = None
    displaced: bool = False

    def joined(self, more: Carried) -> Carried:
        """Return this and what was registered later."""
        return self._replace(
            versions={**self.versions, **more.versions}, resources={**self.resources, **more.resources}
        )

    def codes(self, workflows: Iterable[str]) -> tuple[str, ...]:
        """Return what runs may need of it, for these of its workflows."""
        if self.displaced:
            return ()
        bound = [code_of(name, self.versions[name].id) for name in workflows if name in self.versions]
        return (*bound, *(() if self.is_host else (code_of(name) for name in workflows)))


def frozen(definition: WorkflowDefinition, carried: Carried) -> Frozen:
    """Return what is frozen for runs of a workflow; for one that is bound to no version, what is there now."""
    module = definition.function.__module__
    file = Path(getattr(sys.modules.get(module), "__file__", None) or "")
    package = file.stem if module == "__main__" else module.partition(".")[0]
    version = carried.versions.get(definition.name)
    if version is not None:
        return Frozen(version.config, carried.resources, package)
    extent = definition.extent
    return Frozen(freeze(extent.config, [(name, file.parent / name) for name in extent.config_files]), {}, package)


NOTHING = Carried({})
"""No workflow is bound to a version."""
