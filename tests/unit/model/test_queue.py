"""What can be said about a queue, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import perdure
from perdure import Engine, InvalidValue, Queue, Rate, UsageError
from perdure.api.queues import Routes, served, stored
from perdure.model.queue import QueueRow, rate_bucket

WRONG: dict[str, Callable[[], object]] = {
    "no runs": lambda: Queue("q", concurrency=0),
    "a part of a run": lambda: Queue("q", concurrency=1.5),  # type: ignore[arg-type]
    "yes": lambda: Queue("q", concurrency_per_key=True),
    "no name": lambda: Queue(""),
    "a number for a name": lambda: Queue(7),  # type: ignore[arg-type]
    "a rate of none": lambda: Rate(0, per="1s"),
    "a rate in no time": lambda: Rate(1, per=0),
    "a rate in a thousand years": lambda: Rate(1, per="365000d"),
    "a text for a rate": lambda: Queue("q", rate="1/s"),  # type: ignore[arg-type]
    "no ageing": lambda: Queue("q", ageing=0),
    "a number for a flag": lambda: Queue("q", fair=1),  # type: ignore[arg-type]
    "no weight": lambda: Queue("q", weight=0),
    "weights of a text": lambda: served({"q": "3"}),
    "twice": lambda: served(["q", Queue("q")]),
    "a text for queues": lambda: served("q"),
    "a queue for queues": lambda: served(Queue("q")),  # type: ignore[arg-type]
    "routes of a list": lambda: Routes(["a"]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("which", WRONG)
def test_what_makes_no_sense_is_refused_where_it_is_written(which: str) -> None:
    with pytest.raises(InvalidValue):
        WRONG[which]()


def test_a_setting_that_is_none_is_named_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no setting 'speed'; there are concurrency, .*hold_while_waiting"):
        stored("q", {"speed": 3})


@pytest.mark.parametrize("rate_us", [1, 199, 200, 1_000, 1_000_000])
def test_a_claim_is_counted_until_it_has_left_every_window(rate_us: int) -> None:
    row = QueueRow("q", rate_limit=1, rate_us=rate_us)
    late = [rate_bucket(row, at) - at for at in range(1_000_000, 1_000_000 + 2 * rate_us, max(rate_us // 997, 1))]
    assert min(late) >= 0
    assert max(late) * 200 < max(rate_us, 200)


def test_a_route_is_the_first_pattern_that_matches() -> None:
    routes = Routes({"media.thumb*": "quick", "media.*": "slow", "*.report": "night"})
    found = [routes.queue_of(name) for name in ("media.thumbnail", "media.encode", "sales.report", "order")]
    assert found == ["quick", "slow", "night", None]


@perdure.workflow(name="media.encode")
async def encode() -> None: ...


async def test_a_start_goes_where_its_route_leads_unless_it_says_where() -> None:
    async with Engine("sqlite://", [encode], worker=False, routes={"media.*": "slow"}) as client:
        routed, told = await client.start(encode), await client.start(encode, queue="here")
        (many,) = await client.start_many([perdure.Start("media.encode")])
        assert [(await run.info()).queue for run in (routed, told, many)] == ["slow", "here", "slow"]


@pytest.mark.parametrize("option", ["partition_key", "deduplication_key"])
@pytest.mark.parametrize("value", ["", "x" * 256, "a\0b"])
async def test_a_key_that_cannot_be_one_is_refused_before_anything_is_stored(option: str, value: str) -> None:
    async with Engine("sqlite://", [encode], worker=False) as client:
        with pytest.raises(UsageError, match="key"):
            await client.start_call(encode, (), {}, **{option: value})
        assert [info async for info in client.list()] == []


async def test_of_many_starts_none_is_recorded_if_one_is_wrong() -> None:
    async with Engine("sqlite://", [encode], worker=False) as client:
        with pytest.raises(UsageError):
            await client.start_many([perdure.Start(encode), perdure.Start(encode, 1)])
        assert [info async for info in client.list()] == []


async def test_an_engine_that_only_reads_declares_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    async with Engine(url, [encode], worker=False):
        pass
    async with Engine(url, [encode], worker=False, read_only=True, queues=[Queue("q", concurrency=1)]) as reader:
        assert await reader.queues() == ()


async def test_what_an_operator_sets_outlives_a_restart_until_the_code_says_something_else(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"

    async def limit(declared: int) -> int | None:
        async with Engine(url, [encode], worker=False, queues=[Queue("q", concurrency=declared)]) as client:
            found = (await client.queue("q").info()).concurrency
            await client.queue("q").set(concurrency=9, reason="by hand")
            return found

    assert [await limit(3), await limit(3), await limit(4)] == [3, 9, 4]
