"""What a worker must have in order to run a run: a version of its workflow, as the one text that runs are found by."""

from __future__ import annotations

from typing import Final

UNBOUND: Final = 0
"""In place of a version: a run that is bound to none. Any worker that has the workflow may run it."""


def code_of(workflow: str, version_id: int = UNBOUND) -> str:
    """Return the code of a workflow in a version. A database makes the same text of the two columns."""
    return f"{version_id} {workflow}"


def parts_of(code: str) -> tuple[int, str]:
    """Return version and workflow of a code."""
    version_id, _, workflow = code.partition(" ")
    return int(version_id), workflow
