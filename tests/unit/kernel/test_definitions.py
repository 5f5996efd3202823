"""What can be a step or a workflow, and what a decorated function is outside a run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import perdure
from perdure.errors import UsageError
from perdure.runtime.registry import StepRegistry, WorkflowRegistry


@perdure.step
async def double(number: int) -> int:
    return 2 * number


@perdure.step
def where() -> str:
    return threading.current_thread().name


@perdure.workflow
async def alone(number: int) -> int:
    return number


def makes_numbers() -> Iterator[int]:
    yield 1


async def makes_numbers_later() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("decorate", [perdure.step, perdure.workflow])
@pytest.mark.parametrize("function", [makes_numbers, makes_numbers_later])
def test_a_generator_is_refused(decorate: Any, function: Any) -> None:
    with pytest.raises(UsageError, match="is a generator"):
        decorate(function)


@pytest.mark.parametrize("decorate", [perdure.step, perdure.workflow])
@pytest.mark.parametrize("target", [int, 3, None, double])
def test_only_a_plain_function_can_be_decorated(decorate: Any, target: Any) -> None:
    if target is None:
        target = object()
    with pytest.raises(UsageError, match=r"must be a function|is decorated already"):
        decorate(target)


def test_a_lambda_needs_a_name() -> None:
    nameless: Any = perdure.step(lambda: 1)
    with pytest.raises(UsageError, match="a step cannot be a lambda without a name"):
        StepRegistry().admit(nameless.definition)
    named: Any = perdure.step(name="one")(lambda: 1)
    registry = StepRegistry()
    registry.admit(named.definition)
    assert registry["one"] is named.definition


def test_a_nested_function_needs_a_name_of_its_own() -> None:
    async def inside() -> None: ...

    with pytest.raises(UsageError, match="nested function without a name"):
        WorkflowRegistry().admit(perdure.workflow(inside).definition)
    WorkflowRegistry().admit(perdure.workflow(name="inside")(inside).definition)


def test_one_name_means_one_function() -> None:
    steps, workflows = StepRegistry(), WorkflowRegistry()
    steps.admit(double.definition)
    steps.admit(double.definition)
    other: Any = perdure.step(name="double")(makes_no_numbers)
    with pytest.raises(UsageError, match=r"two steps are named 'double': .*double and .*makes_no_numbers"):
        steps.admit(other.definition)
    workflows.admit(alone.definition)
    second: Any = perdure.workflow(name="alone")(makes_no_numbers)
    with pytest.raises(UsageError, match=r"two workflows are named 'alone'"):
        workflows.admit(second.definition)


def makes_no_numbers() -> None:
    """Not a generator."""


async def test_outside_a_run_a_step_is_its_function() -> None:
    assert await double(2) == 4
    assert await double.aio(2) == 4
    assert where() == where.blocking() == threading.main_thread().name
    assert await where.aio() != threading.main_thread().name
    assert await asyncio.to_thread(double.blocking, 2) == 4
    assert repr(double) == "<step 'double'>"


def test_a_step_cannot_be_a_method() -> None:
    class Shop:
        buy = double

    assert Shop.buy is double
    with pytest.raises(UsageError, match="step 'double' is a method"):
        _ = Shop().buy


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "\0", "\ud800", 3])
def test_a_name_is_readable_text(name: Any) -> None:
    with pytest.raises(UsageError, match="must be a text of 1 to 255 characters"):
        perdure.step(name=name)(makes_no_numbers)


def test_a_wrong_name_is_shown_in_part() -> None:
    with pytest.raises(UsageError, match=r"5000 characters") as caught:
        perdure.step(name="y" * 5000)(makes_no_numbers)
    assert len(str(caught.value)) < 300
