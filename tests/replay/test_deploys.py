"""A module is changed on disk after its runs were recorded, and the next process that loads it is asked."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.replay.history import History
from perdure.replay.pool import Pool
from perdure.replay.verdict import Verdict
from perdure.replay.verdict import VerdictKind as Kind
from tests.kernel.replay import record
from tests.kernel.steps import add, names, plus
from tests.replay.recorded import history_of, lived, unfinished, verdict

SOURCE = """
import asyncio
from dataclasses import dataclass
import perdure

@dataclass
class Price:
    cents: int

@perdure.step
async def price(item: str) -> Price:
    return Price(len(item))

@perdure.step
async def charge(amount: Price) -> str:
    return f"charged {amount.cents}"

@perdure.workflow
async def order(item: str) -> str:
    amount = await price(item)
    return await charge(amount)
"""
NUMBERS = itertools.count()
Deploy = Callable[..., Verdict]


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deploy]:
    """Give what records a run of the module, changes its text and checks the run with it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"perdure_deployed_{next(NUMBERS)}"
    file = tmp_path / f"{name}.py"
    file.write_text(SOURCE)
    module = __import__(name)
    recorded: History = history_of(record(module.order, args=("tea",)))

    def check(*changes: tuple[str, str]) -> Verdict:
        text = SOURCE
        for before, after in changes:
            assert text.count(before) >= 1, before
            text = text.replace(before, after)
        file.write_text(text)
        pool = Pool({"order": module.order.definition})
        try:
            return pool.check(recorded)
        finally:
            pool.close()

    yield check
    del sys.modules[name]


def test_a_result_whose_class_was_deleted_is_incompatible(deploy: Deploy) -> None:
    told = deploy(
        ("class Price", "class Amount"), ("-> Price", "-> object"), ("Price(len", "Amount(len"), (": Price", "")
    )
    assert (told.kind, told.at) == (Kind.STATE_INCOMPATIBLE, "0"), str(told)
    assert told.found.startswith("the result of step 'price' cannot be read: ")
    assert "Price" in told.found


def test_a_result_that_lacks_a_new_field_is_incompatible(deploy: Deploy) -> None:
    told = deploy(
        ("    cents: int", "    cents: int\n    currency: str"), ("Price(len(item))", "Price(len(item), 'EUR')")
    )
    assert (told.kind, told.at) == (Kind.STATE_INCOMPATIBLE, "0"), str(told)
    assert "currency" in told.found


def test_a_new_field_with_a_default_is_other_data_for_the_next_step(deploy: Deploy) -> None:
    told = deploy(("    cents: int", "    cents: int\n    currency: str = 'EUR'"))
    assert (told.kind, told.at) == (Kind.SAFE_ARGS_DIFFER, "1"), str(told)
    assert told.expected == """step 'charge' (event 4) with {"amount":{"cents":3}}"""
    assert told.found == """the code calls it with {"amount":{"cents":3,"currency":"EUR"}}"""


def test_formatting_and_comments_are_no_change(deploy: Deploy) -> None:
    assert deploy(("    amount = ", "    # what it costs\n\n    amount = ")).kind is Kind.SAFE


def test_a_renamed_step_diverges(deploy: Deploy) -> None:
    told = deploy(("price(item", "cost(item"))
    assert (told.kind, told.at, told.found) == (Kind.DIVERGES, "0", "the code asks for step 'cost'")


def test_a_step_whose_inside_changed_is_safe(deploy: Deploy) -> None:
    assert deploy(('return f"charged', 'raise SystemExit  # return f"charged')).kind is Kind.SAFE


# ------------------------------------------------------------------------------------------------------------ branches


async def one_then_two() -> list[Any]:
    async def one() -> int:
        return await plus.aio(await add(1, 1), 1)

    async def two() -> list[str]:
        return await names()

    return list(await asyncio.gather(one(), two()))


async def two_then_one() -> list[Any]:
    async def one() -> int:
        return await plus.aio(await add(1, 1), 1)

    async def two() -> list[str]:
        return await names()

    return list(await asyncio.gather(two(), one()))


@pytest.mark.parametrize("seed", range(6))
def test_the_order_in_which_branches_ended_makes_no_difference_and_swapped_branches_diverge(seed: int) -> None:
    history = unfinished(lived(one_then_two, seed=seed))
    assert verdict(one_then_two, history).kind is Kind.SAFE
    told = verdict(two_then_one, history)
    assert told.kind is Kind.DIVERGES
    first = next(event.op for event in history.events if event.op)
    assert told.at == first


def test_the_branches_of_these_runs_did_end_in_both_orders() -> None:
    assert {next(event.op for event in lived(one_then_two, seed=seed).log if event.op) for seed in range(6)} == {
        "0.0", "1.0",
    }  # fmt: skip
