"""A failed run tells whoever waits where in the code it failed, also when it failed in another process."""

from __future__ import annotations

import traceback

import pytest

import perdure


@perdure.step
async def divide(by: int) -> float:
    return 1 / by


@perdure.workflow
async def halve(by: int) -> float:
    return await divide(by)


async def test_what_is_printed_of_a_failed_run_names_the_line(tmp_db: str) -> None:
    async with perdure.Engine(tmp_db, [halve]) as engine:
        with pytest.raises(perdure.RunFailed) as caught:
            await engine.run(halve, 0)
    printed = "".join(traceback.format_exception(caught.value))
    assert "return 1 / by" in printed
    assert "return await divide(by)" in printed
    assert str(caught.value).endswith("failed: ZeroDivisionError: division by zero")
