"""The bodies that carry out a plan, and a worker and a client process for them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import perdure
from perdure.model.write import Append, Conflict, Outcome, Write
from tests.faults.storm.plan import fold, make

logger = logging.getLogger(__name__)
PORT = int(os.environ.get("SINK_PORT", "0"))
QUICK = perdure.Retry(attempts=20, initial=0.01, factor=1.0, maximum=0.01)


def _line(op: dict[str, Any]) -> bytes:
    info = perdure.step_info()
    run_id = info.key.partition(":")[0]
    return f"{run_id}\t{op['n']}\t{op['op']}\t{op['value']}\t{info.key}\t{info.epoch}\t{info.attempt}\n".encode()


async def _call(op: dict[str, Any]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(_line(op))
    assert await reader.readline() == b"ok\n"
    writer.close()
    await asyncio.sleep(op["ms"] / 1000)


@perdure.step
async def add(op: dict[str, Any]) -> int:
    await _call(op)
    return int(op["value"])


@perdure.step
def sync(op: dict[str, Any]) -> int:
    with socket.create_connection(("127.0.0.1", PORT)) as connection:
        connection.sendall(_line(op))
        assert connection.recv(8) == b"ok\n"
    time.sleep(op["ms"] / 1000)
    return int(op["value"])


@perdure.step(retry=QUICK)
async def retry(op: dict[str, Any]) -> int:
    await _call(op)
    if perdure.step_info().attempt <= op["fails"]:
        raise ConnectionError(op["n"])
    return int(op["value"])


@perdure.step(mode="at_most_once")
async def once(op: dict[str, Any]) -> int:
    await _call(op)
    return int(op["value"])


@perdure.step(durability="ahead")
async def ahead(op: dict[str, Any]) -> int:
    return int(op["value"])


@perdure.step(durability="none")
async def none(op: dict[str, Any]) -> int:
    return int(op["value"])


async def _perform(acc: int, op: dict[str, Any]) -> int:
    match op["op"]:
        case "gather":
            for value in await asyncio.gather(*(add(part) for part in op["parts"])):
                acc = fold(acc, value)
            return acc
        case "sleep":
            await asyncio.sleep(op["ms"] / 1000)
            return acc
        case "mark":
            await perdure.checkpoint("mark", acc)
            await perdure.publish("acc", acc)
            return acc
        case "once":
            with suppress(perdure.StepInterrupted):
                await once(op)
            return acc
        case "sync":
            return fold(acc, await sync.aio(op))
        case kind:
            return fold(acc, await {"add": add, "retry": retry, "ahead": ahead, "none": none}[kind](op))


@perdure.workflow
async def body(number: int, ops: list[dict[str, Any]]) -> int:
    acc = number
    for op in ops:
        acc = await _perform(acc, op)
    return acc


@perdure.workflow
async def doomed(number: int, ops: list[dict[str, Any]]) -> None:
    """Never ends by itself; cleans up when it is cancelled."""
    try:
        await body.definition.function(number, ops[:-1])
        await asyncio.sleep(3600)
    finally:
        await add(ops[-1])


@perdure.workflow
def sync_body(number: int, ops: list[dict[str, Any]]) -> int:
    acc = number
    for op in ops:
        match op["op"]:
            case "sleep":
                perdure.blocking.sleep(op["ms"] / 1000)
            case "mark":
                perdure.blocking.checkpoint("mark", acc)
                perdure.blocking.publish("acc", acc)
            case "once":
                with suppress(perdure.StepInterrupted):
                    once.blocking(op)
            case "sync":
                acc = fold(acc, sync(op))
            case kind:
                acc = fold(acc, {"add": add, "retry": retry, "ahead": ahead, "none": none}[kind].blocking(op))
    return acc


FLOWS: dict[str, perdure.Workflow[..., Any]] = {"body": body, "doomed": doomed, "sync_body": sync_body}


def tell_refusals(engine: perdure.Engine) -> None:
    """Have a line logged for each append that is refused: the worker itself says nothing once it knows it is dead."""
    store: Any = engine._store
    plain, rest = store.commit, store.land

    def told(batch: Sequence[Write], outcomes: list[Outcome] | None) -> list[Outcome] | None:
        for write, outcome in zip(batch, outcomes or (), strict=False):
            if isinstance(write, Append) and isinstance(outcome, Conflict):
                logger.warning("a stale append was refused")
        return outcomes

    store.commit = lambda batch, *, block=True: told(batch, plain(batch, block=block))
    store.land = lambda batch, flight: told(batch, rest(batch, flight))  # a refused flight ends there


async def work(url: str) -> None:
    """Execute runs until killed."""
    engine = perdure.Engine(url, list(FLOWS.values()), lease=1.0, poll=0.1, max_deaths=10_000, concurrency=30)
    tell_refusals(engine)
    async with engine:
        print("ready", flush=True)
        await asyncio.Event().wait()


async def request(url: str, seed: int, first: int, last: int, pause: float) -> None:
    """Start runs, one after another, and say so after each confirmation; cancel those that must be."""
    async with perdure.Engine(url, list(FLOWS.values()), worker=False) as engine:
        for number in range(first, last):
            plan = make(seed, number)
            run = await engine.start(FLOWS[plan.flow], number, plan.ops, id=plan.run_id)
            os.write(1, f"started {number}\n".encode())
            if plan.flow == "doomed":
                await asyncio.sleep(pause)
                await run.cancel(actor="storm", reason="doomed")
            os.write(1, f"done {number}\n".encode())
            await asyncio.sleep(pause)
    os.write(1, b"all done\n")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    if sys.argv[1] == "work":
        asyncio.run(work(sys.argv[2]))
    else:
        seed, first, last = map(int, sys.argv[3:6])
        asyncio.run(request(sys.argv[2], seed, first, last, float(sys.argv[6])))
