"""A check in this very process: for a debugger, and for workflows that no other process finds."""

from __future__ import annotations

import threading
from asyncio import events
from typing import TYPE_CHECKING, Any

from perdure.replay.check import Code, check
from perdure.runtime.carried import NOTHING, frozen
from perdure.runtime.registry import StepRegistry

if TYPE_CHECKING:
    from perdure.codec.base import Codec
    from perdure.kernel.definition import WorkflowDefinition
    from perdure.replay.history import History
    from perdure.replay.verdict import Verdict


def check_here(history: History, workflow: WorkflowDefinition, codec: Codec) -> Verdict:
    """Check one history: on this thread, or on one of its own if an event loop runs on this one."""
    code = Code(workflow, StepRegistry(), codec, frozen(workflow, NOTHING))
    if events._get_running_loop() is None:  # noqa: SLF001 - get_running_loop() would raise outside a loop
        return check(history, code).verdict
    ended: list[Any] = []

    def work() -> None:
        try:
            ended.append(check(history, code).verdict)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            ended.append(error)

    thread = threading.Thread(target=work, name="perdure-check")
    thread.start()
    thread.join()
    if isinstance(ended[0], BaseException):
        raise ended[0]
    verdict: Verdict = ended[0]
    return verdict
