"""What ``cancel``, ``retry`` and ``purge`` have in common: several runs, each told of by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.cli.output import print_line
from perdure.cli.session import act
from perdure.cli.telling import USAGE, say
from perdure.errors import PerdureError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from perdure.api.engine import Engine


def on_each(url: str, ids: Sequence[str], do: Callable[[Engine, str], Coroutine[Any, Any, tuple[str, int]]]) -> int:
    """Act on every run and print a line for each; what is refused for one does not stop the others.

    Args:
        url: database.
        ids: runs.
        do: acts on one run; returns what to print and an exit code.

    Returns:
        The highest exit code.
    """

    async def work(engine: Engine) -> int:
        highest = 0
        for run_id in dict.fromkeys(ids):
            try:
                text, code = await do(engine, run_id)
            except PerdureError as error:
                say(f"error: {error}")
                code = USAGE
            else:
                print_line(text)
            highest = max(highest, code)
        return highest

    return act(url, work)
