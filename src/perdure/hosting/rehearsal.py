"""A process that checks histories against stored versions; see `perdure.replay.child`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.hosting.files import Files
from perdure.hosting.load import load
from perdure.replay.check import Code
from perdure.replay.child import NotLoaded, serve
from perdure.runtime.carried import Carried, Version, frozen
from perdure.runtime.hosts.job import read_job
from perdure.runtime.registry import StepRegistry

if TYPE_CHECKING:
    from perdure.codec.base import Chain
    from perdure.replay.frames import Order


def _stored(order: Order, codec: Chain) -> dict[str, Code]:
    job = read_job(order.job)
    loaded = load(job)
    for cause in loaded.causes.values():
        raise NotLoaded(cause.detail)
    versions = {entry.workflow: Version(entry.version_id, entry.label, entry.config) for entry in job.entries}
    carried = Carried(versions, Files(loaded.tree, job.manifest), is_host=True)
    steps = StepRegistry()
    workflows = [workflow.definition for workflow in loaded.workflows.values()]
    return {each.name: Code(each, steps, codec, frozen(each, carried)) for each in workflows}


if __name__ == "__main__":
    serve(_stored)
