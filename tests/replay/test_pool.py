"""Checks in processes of their own: two hash seeds, many histories, and code that does not come back."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.replay.history import History
from perdure.replay.pool import Pool
from perdure.replay.verdict import VerdictKind as Kind
from tests.kernel.replay import record
from tests.process import Spawner
from tests.replay import targets
from tests.replay.recorded import history_of, unfinished

EVERY: list[perdure.Workflow[..., Any]] = [
    targets.counts, targets.sync_counts, targets.by_set, targets.by_order, targets.by_branch, targets.by_chance,
    targets.writes, targets.dies, targets.spins,
]  # fmt: skip


def definitions(*workflows: perdure.Workflow[..., Any]) -> dict[str, Any]:
    return {workflow.name: workflow.definition for workflow in workflows or EVERY}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool(definitions(), patience_s=1)
    yield pool
    pool.close()


def history(workflow: perdure.Workflow[..., Any], *args: Any) -> History:
    return history_of(record(workflow, args=args))


def test_processes_find_the_code_and_agree(pool: Pool) -> None:
    assert pool.check(history(targets.counts, 5)).kind is Kind.SAFE
    assert pool.check(history(targets.sync_counts, 5)).kind is Kind.SAFE
    assert pool.check(history(targets.by_order)).kind is Kind.SAFE


@pytest.mark.parametrize("workflow", [targets.by_set, targets.by_branch, targets.by_chance])
def test_what_depends_on_the_process_is_found(pool: Pool, workflow: perdure.Workflow[..., Any]) -> None:
    told = pool.check(history(workflow))
    assert told.kind is Kind.NONDETERMINISTIC, str(told)
    assert told.at == ("1" if workflow is targets.by_chance else "0")
    assert "another" in told.found


def test_one_process_cannot_tell_and_says_what_one_replay_shows() -> None:
    pool = Pool(definitions(targets.by_order), processes=1)
    assert pool.check(history(targets.by_order)).kind is Kind.SAFE
    pool.close()


def before_the_end(workflow: perdure.Workflow[..., Any]) -> History:
    """Give a history up to the result of its first step; the rest would not come."""
    recorded = record(targets.counts, args=(1,))
    events = [event._replace(input=b"{}") if event.seq == 1 else event for event in recorded.log[:3]]
    taken = history_of(recorded, events)
    digest = record(targets.by_chance).log[2].digest
    events = [event._replace(digest=digest) if event.op else event for event in events]
    return History(
        run_id="run", workflow=workflow.name, version=taken.version, tags=None, codec="json", events=tuple(events)
    )


def test_an_effect_is_stopped_in_the_other_processes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pool = Pool(definitions(targets.writes))
    told = pool.check(before_the_end(targets.writes))
    pool.close()
    assert (told.kind, told.at) == (Kind.SIDE_EFFECT, "0")
    assert told.found.startswith("the code does this outside a step: open('perdure-effect', 'w') (")
    assert "targets.py:" in told.found
    assert not list(tmp_path.iterdir())


def test_code_that_ends_its_process_or_does_not_come_back_is_told_and_the_pool_goes_on(pool: Pool) -> None:
    ended = pool.check(before_the_end(targets.dies))
    assert (ended.kind, ended.found) == (
        Kind.RAISES, "the process that checked it has ended (exit code 7): it says nothing"
    )  # fmt: skip
    stuck = pool.check(before_the_end(targets.spins))
    assert (stuck.kind, stuck.found) == (Kind.RAISES, "the code did not come to its next operation within 1 s")
    assert pool.check(history(targets.counts, 2)).kind is Kind.SAFE


def test_a_workflow_that_no_other_process_finds_is_refused() -> None:
    @perdure.workflow(name="inner")
    async def inner() -> None: ...

    with pytest.raises(perdure.UsageError, match=r"no other process finds it.*processes=0"):
        Pool(definitions(inner))


def test_a_run_of_other_code_or_another_codec_is_refused(pool: Pool) -> None:
    known = unfinished(record(targets.counts, args=(1,)))
    with pytest.raises(perdure.UsageError, match="whose code is not here"):
        pool.check(History(**{**facts(known), "workflow": "other"}))
    with pytest.raises(perdure.UsageError, match="was stored with codec 'pickle'"):
        pool.check(History(**{**facts(known), "codec": "pickle"}))


def facts(known: History) -> dict[str, Any]:
    return {name: getattr(known, name) for name in History.__struct_fields__}


BROKEN = """
import perdure
@perdure.workflow
async def flow(): ...
if {broken}:
    raise LookupError("no key")
"""


def test_code_that_cannot_be_loaded_is_told_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "perdure_broken.py"
    file.write_text(BROKEN.format(broken=False))
    module = __import__("perdure_broken")
    try:
        pool = Pool(definitions(module.flow))
        recorded = history_of(record(module.flow))
        file.write_text(BROKEN.format(broken=True))
        with pytest.raises(perdure.UsageError, match=r"cannot be loaded: LookupError: no key \(.*perdure_broken.py:6"):
            pool.check(recorded)
        file.write_text(BROKEN.format(broken=False))
        assert pool.check(recorded).kind is Kind.SAFE
        pool.close()
    finally:
        del sys.modules["perdure_broken"]


SCRIPT = """
import asyncio, sys
from dataclasses import dataclass
import perdure
from perdure.replay.history import record
from perdure.replay.pool import Pool

@dataclass
class Price:
    cents: int

@perdure.step
async def price() -> Price:
    return Price(3)

@perdure.step
async def double(one: Price) -> Price:
    return Price(one.cents * 2)

@perdure.workflow
async def flow() -> Price:
    print("this is not for the pool", flush=True)
    return await double(await price())

async def main() -> None:
    async with perdure.Engine("sqlite://", [flow]) as engine:
        run = await engine.start(flow, id="r")
        await run.result()
        row = await engine.connection.read(engine.connection.store.get, "r")
        events = await engine.connection.read(engine.connection.store.load, "r")
        history = record(row, events, engine.connection.codec)
    pool = Pool({"flow": flow.definition})
    print("told", pool.check(history))
    pool.close()

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_code_of_a_script_is_found_without_running_the_script(spawn: Spawner, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SCRIPT)
    result = spawn(sys.executable, tmp_path / "shop.py", folder=tmp_path).finish()
    assert result.code == 0, result.err
    assert result.out.splitlines()[-1] == "told r (flow): SAFE: next: the run completes"


def test_a_script_that_checks_at_its_top_does_not_start_processes_without_end(spawn: Spawner, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SCRIPT.replace('if __name__ == "__main__":', "if True:"))
    result = spawn(sys.executable, tmp_path / "shop.py", folder=tmp_path).finish()
    assert result.code == 1
    assert "the code starts a check while it is loaded for one" in result.err


@pytest.mark.serial
def test_a_thousand_histories_take_less_than_five_seconds_of_processor_time() -> None:
    histories = [history(targets.counts, 20) for _ in range(2)] + [history(targets.sync_counts, 20)]
    pool = Pool(definitions())
    before = processor_time()
    for n in range(1000):
        assert pool.check(histories[n % len(histories)]).kind is Kind.SAFE
    pool.close()
    taken = processor_time() - before
    print(f"{taken:.2f} s")
    assert taken < 15  # 5 is what is promised; a slow machine takes three times as long


def processor_time() -> float:
    """Give what this process and the children it has waited for have used."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def test_nothing_is_left_of_a_pool_that_was_closed() -> None:
    pool = Pool(definitions())
    pool.check(history(targets.counts, 1))
    processes = [child._process.pid for child in pool._children if child._process is not None]
    assert len(processes) == 2
    pool.close()
    for pid in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_pool_serves_from_within_an_event_loop(pool: Pool) -> None:
    assert (await asyncio.to_thread(pool.check, history_of(await asyncio.to_thread(record, targets.by_order)))).is_safe
