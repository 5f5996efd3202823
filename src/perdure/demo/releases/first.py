"""The shop: the workflow that the demonstration is about."""

from __future__ import annotations

import asyncio
import json
import os

from perdure import Retry, step, step_info, workflow
from perdure.demo.orders import Order

RELEASE = "1.0.0"
"""Told to every service, so that the outside ledger shows which code was at work."""
SERVICE = "PERDURE_DEMO_SERVICE"
"""Environment variable with the socket of the services outside."""
PATIENTLY = Retry(attempts=10, initial="50ms", maximum="500ms")


async def call(service: str, order: Order) -> str:
    """Ask a service outside for something, under the step's key, so that asking again does nothing twice."""
    request = {
        "pid": os.getpid(),
        "service": service, "key": step_info().key, "order_id": order.order_id, "cents": order.cents,
        "release": RELEASE,
    }  # fmt: skip
    reader, writer = await asyncio.open_unix_connection(os.environ[SERVICE])
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        line = await reader.readline()
    finally:
        writer.close()
    if not line:
        message = f"{service}: no answer"
        raise ConnectionError(message)
    answer = json.loads(line)
    if "error" in answer:
        message = f"{service}: {answer['error']}"
        raise ConnectionError(message)
    return str(answer["receipt"])


@step(retry=PATIENTLY)
async def reserve(order: Order) -> str:
    """Take the goods off the shelf."""
    return await call("reserve", order)


@step(retry=PATIENTLY)
async def charge(order: Order) -> str:
    """Capture the payment."""
    return await call("charge", order)


@step(retry=PATIENTLY)
async def ship(order: Order) -> str:
    """Hand the parcel over."""
    return await call("ship", order)


@step(retry=PATIENTLY)
async def notify(order: Order) -> str:
    """Write to the customer."""
    return await call("notify", order)


@workflow(version=RELEASE)
async def fulfil(order: Order) -> str:
    """Fulfil one paid order. Its run id is the payment id, so a payment is fulfilled once."""
    await reserve(order)
    await charge(order)
    await asyncio.sleep(0.5)  # the courier comes; the run waits in the database
    parcel = await ship(order)
    await notify(order)
    return parcel
