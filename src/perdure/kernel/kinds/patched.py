"""The patch: a change to a workflow that new runs take and runs already past it do not.

One marker per name and run says that the run takes the change. Its id follows from the name, not from the place of
the call: no other operation gets another id because of it, the call may move, and when no run without the marker is
left the call can be deleted, because a marker that nobody asks for is passed over.

Without a marker the log decides. An event still ahead that answers something the body has not asked for by now shows
that the code this was recorded with came past here: the run stays on the old path. Events ahead of operations already
asked for show nothing, because they may be older than the marker would have been. What is started later is also
recorded later (see `perdure.runtime.launcher`), so a crash before the marker is durable gives the same answer again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.kernel.definition import check_name
from perdure.kernel.marker import Marker
from perdure.kernel.scope import body
from perdure.model.status import EventType

if TYPE_CHECKING:
    from perdure.kernel.requests import Requests

TAKEN: str = EventType.PATCH_TAKEN.value


class Patch(Marker):
    """That the run takes a change."""

    kind = "patch"
    event = EventType.PATCH_TAKEN


def patched(name: str) -> bool:
    """Whether this run takes the change called ``name``: new runs do, runs that are past this place do not.

    The first answer holds for the whole run, also on every replay.

    Raises:
        UsageError: called outside a workflow body, or with an empty name.
    """
    run = body("patched")
    run.check_alive()
    known = run.patches.get(check_name(name, "the name of a patch"))
    if known is not None:
        return known
    if run.bridge is None:
        return _decide(run, name)

    async def decide() -> bool:
        return _decide(run, name)

    taken: bool = run.bridge.call(decide)
    return taken


def _decide(run: Requests, name: str) -> bool:
    taken = run.patches[name] = _is_taken(run, name)
    if taken:
        run.request(Patch(run, f"~patch:{name}", name, None))
    return taken


def _is_taken(run: Requests, name: str) -> bool:
    passed = False
    for event in run.ahead:
        if event.type == TAKEN and event.name == name:
            return True
        passed = passed or not (event.op is None or run.has_asked(event.op))
    return not passed
