"""Random programs as data: a seed makes a tree, and one workflow acts it out with all that asyncio offers."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import perdure
from tests.kernel.outside import note
from tests.kernel.steps import add, ahead, fail, flaky, once, peek, plus

Tree = list[Any]
Act = Callable[..., Awaitable[Any]]
LEAVES: dict[str, Act] = {}
NODES: dict[str, Act] = {}
DEPTH = contextvars.ContextVar("depth", default=0)


def leaf(function: Act) -> Act:
    return LEAVES.setdefault(function.__name__, function)


def node(function: Act) -> Act:
    return NODES.setdefault(function.__name__, function)


def grow(seed: int) -> Tree:
    """Make a program of moderate size."""
    dice = Random(seed)
    return ["sequence", *(_grow(dice, 3) for _ in range(dice.randint(2, 3)))]


def _grow(dice: Random, depth: int) -> Tree:
    if depth == 0 or dice.random() < 0.3:
        return [dice.choice(sorted(LEAVES)), dice.randint(0, 9)]
    name = dice.choice(sorted(NODES))
    return [name, *(_grow(dice, depth - 1) for _ in range(dice.randint(1, 3)))]


@perdure.workflow
async def act_out(tree: Tree) -> str:
    return repr(await act(tree))


async def act(tree: Tree) -> Any:
    """Act out one node; what went wrong is a result like any other."""
    name, *rest = tree
    try:
        result = await (LEAVES.get(name) or NODES[name])(*rest)
    except Exception as error:
        result = f"{type(error).__name__}({error})"
    note(name, repr(result))
    return result


# -- leaves ------------------------------------------------------------------------------------------------------


@leaf
async def step(n: int) -> Any:
    return await add(n, 1)


@leaf
async def thread_step(n: int) -> Any:
    return await plus.aio(n, 2)


@leaf
async def ahead_step(n: int) -> Any:
    return await ahead(n)


@leaf
async def unrecorded_step(n: int) -> Any:
    return await peek(n)


@leaf
async def retried_step(n: int) -> Any:
    return await flaky(n)


@leaf
async def once_step(n: int) -> Any:
    return await once(n)


@leaf
async def failing_step(n: int) -> Any:
    return await fail(f"on purpose {n}")


@leaf
async def pause(n: int) -> Any:
    await asyncio.sleep(n / 3)
    return perdure.now().isoformat()


@leaf
async def chance(n: int) -> Any:
    return [perdure.random(), str(perdure.uuid4()), asyncio.get_running_loop().time()][n % 3]


@leaf
async def marker(n: int) -> None:
    perdure.publish("latest", n)
    await perdure.checkpoint(f"at {n}")
    if n % 2:
        await perdure.publish("latest", -n)


@leaf
async def bell(n: int) -> Any:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_later(n / 2, future.set_result, n)
    silent = loop.call_later(n / 4, note, "never heard")
    silent.cancel()
    return await future


@leaf
async def depth_seen(n: int) -> int:
    DEPTH.set(DEPTH.get() + 1)
    await asyncio.sleep(0)
    return DEPTH.get()


# -- nodes -------------------------------------------------------------------------------------------------------


@node
async def sequence(*trees: Tree) -> list[Any]:
    return [await act(tree) for tree in trees]


@node
async def gather(*trees: Tree) -> list[Any]:
    return list(await asyncio.gather(*(act(tree) for tree in trees)))


@node
async def group(*trees: Tree) -> list[Any]:
    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(act(tree)) for tree in trees]
    return [task.result() for task in made]


@node
async def aborted_group(*trees: Tree) -> Any:
    failed = 0
    try:
        async with asyncio.TaskGroup() as tasks:
            for tree in trees:
                tasks.create_task(tidy(tree))
            tasks.create_task(fail("abort"))
    except* Exception as errors:
        failed = len(errors.exceptions)
    return failed


@node
async def first(*trees: Tree) -> list[Any]:
    made = [asyncio.create_task(tidy(tree)) for tree in trees]
    done, rest = await asyncio.wait(made, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    return [task.result() for task in done]


@node
async def in_order_of_end(*trees: Tree) -> list[Any]:
    return [await future for future in asyncio.as_completed([act(tree) for tree in trees])]


@node
async def limited(*trees: Tree) -> list[Any]:
    async with asyncio.timeout(len(trees)):
        return [await tidy(tree) for tree in trees]


@node
async def waited_for(*trees: Tree) -> Any:
    return await asyncio.wait_for(sequence(*trees), 1.5)


@node
async def shield(*trees: Tree) -> Any:
    inner = asyncio.ensure_future(sequence(*trees))
    try:
        return await asyncio.wait_for(asyncio.shield(inner), 0.7)
    except TimeoutError:
        return ["late", await inner]


@node
async def cancelled(*trees: Tree) -> Any:
    task = asyncio.create_task(tidy(["sequence", *trees]))
    await asyncio.sleep(len(trees) / 2)
    task.cancel()
    result = (await asyncio.gather(task, return_exceptions=True))[0]
    return repr(result)


@node
async def background(*trees: Tree) -> None:
    for tree in trees:
        asyncio.create_task(tidy(tree))  # noqa: RUF006 - forgotten on purpose


@node
async def queue(*trees: Tree) -> list[Any]:
    work: asyncio.Queue[Tree] = asyncio.Queue(maxsize=1)
    done: list[Any] = []

    async def consume() -> None:
        while True:
            done.append(await act(await work.get()))
            work.task_done()

    consumers = [asyncio.create_task(consume()) for _ in range(2)]
    for tree in trees:
        await work.put(tree)
    await work.join()
    for consumer in consumers:
        consumer.cancel()
    return done


@node
async def guarded(*trees: Tree) -> list[Any]:
    lock, ready, order = asyncio.Lock(), asyncio.Event(), []

    async def enter(tree: Tree) -> None:
        await ready.wait()
        async with lock:
            order.append(await act(tree))

    tasks = [asyncio.create_task(enter(tree)) for tree in trees]
    await add(0, 0)
    ready.set()
    await asyncio.gather(*tasks)
    return order


@node
async def generator(*trees: Tree) -> list[Any]:
    async def produce() -> AsyncIterator[Any]:
        try:
            for tree in trees:
                yield await act(tree)
        finally:
            note("closed", await add(1, 1))

    seen = []
    async for item in produce():
        seen.append(item)
        if len(seen) > 1:
            break
    return seen


async def tidy(tree: Tree) -> Any:
    """Act out, and clean up with a step."""
    try:
        return await act(tree)
    finally:
        note("tidied", await add(5, 5))
