"""`perdure.testing`: recorded runs in the tests of an application."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure.replay.history import History
from perdure.testing import VerdictKind, assert_replays, replay
from tests.kernel.replay import record
from tests.kernel.steps import add
from tests.replay import targets
from tests.replay.recorded import history_of


@perdure.workflow(name="counts")
async def counts_twice(length: int) -> int:
    total = 0
    for n in range(length):
        total = await add(total, 2 * n)
    return total


@perdure.workflow(name="counts")
async def counts_more(length: int) -> int:
    total = 0
    for n in range(length + 1):
        total = await add(total, n)
    return total


def counted(run_id: str = "run", length: int = 3) -> History:
    return history_of(record(targets.counts, args=(length,), run_id=run_id))


def test_a_recorded_run_is_replayed_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    file.write_text(counted().dump())
    assert replay(file, targets.counts).kind is VerdictKind.SAFE
    assert replay(str(file), targets.counts, processes=0).kind is VerdictKind.SAFE
    assert replay(counted(), counts_more, processes=0).kind is VerdictKind.DIVERGES
    assert replay(counted(), targets.sync_counts, processes=1).kind is VerdictKind.DIVERGES


def test_every_run_that_does_not_fit_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(counted("a").dump() + counted("b", 1).dump())
    assert [str(verdict) for verdict in assert_replays(tmp_path, targets.counts)] == [
        "a (counts): SAFE: next: the run completes", "b (counts): SAFE: next: the run completes"
    ]  # fmt: skip
    with pytest.raises(AssertionError) as caught:
        assert_replays(tmp_path, counts_more, processes=0)
    first, *lines = str(caught.value).splitlines()
    assert first == "2 of 2 recorded runs do not replay:"
    assert [line.split(":")[0] for line in lines] == ["a (counts)", "b (counts)"]


def test_other_arguments_can_be_accepted() -> None:
    given = [counted("a", 2)]
    with pytest.raises(AssertionError, match="SAFE_ARGS_DIFFER at 1"):
        assert_replays(given, counts_twice, processes=0)
    assert assert_replays(given, counts_twice, processes=0, accept=["SAFE_ARGS_DIFFER"])[0].at == "1"


def test_a_run_without_its_workflow_and_several_runs_for_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(perdure.UsageError, match="recorded runs of counts"):
        assert_replays(counted(), targets.by_order)
    (tmp_path / "a.jsonl").write_text(counted("a").dump() + counted("b").dump())
    with pytest.raises(perdure.UsageError, match="holds 2 runs"):
        replay(tmp_path / "a.jsonl", targets.counts)


async def test_it_may_be_called_from_an_async_test() -> None:
    history = history_of_counts()
    assert replay(history, targets.counts, processes=0).is_safe


def history_of_counts() -> History:
    return COUNTED


COUNTED = counted()
