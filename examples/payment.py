"""Payments: retries that survive a crash, errors not worth one, and the key that keeps a retry from paying twice."""

from __future__ import annotations

import asyncio

import perdure


class CardDeclined(Exception):
    """Trying again would not help."""


class Gateway:
    """Stands for a payment provider: honours an idempotency key, and loses its first two answers."""

    def __init__(self) -> None:
        self.payments: dict[str, int] = {}
        self.calls = 0

    async def charge(self, card: str, cents: int, key: str) -> str:
        self.calls += 1
        if card == "stolen":
            raise CardDeclined(card)
        self.payments.setdefault(key, cents)  # the same key never pays a second time
        if self.calls <= 2:
            raise ConnectionError("paid, but the answer was lost")
        return f"paid {cents} cents"


gateway = Gateway()


@perdure.step(
    retry=perdure.Retry(attempts=6, initial="50ms", maximum="2s", give_up_on=(CardDeclined,)),
    timeout="10s",  # of each attempt
)
async def charge(card: str, cents: int) -> str:
    attempt = perdure.step_info()
    print(f"attempt {attempt.attempt} with key {attempt.key}")
    return await gateway.charge(card, cents, attempt.key)


@perdure.step
async def apologise(card: str) -> str:
    return f"card {card!r} was declined, nothing was paid"


@perdure.workflow
async def pay(card: str, cents: int) -> str:
    try:
        return await charge(card, cents)
    except CardDeclined:
        return await apologise(card)


async def main() -> None:
    async with perdure.Engine("sqlite:///payments.db", [pay]) as engine:
        print(await engine.run(pay, "good", 4900, id="payment-1"))
        print(await engine.run(pay, "stolen", 4900, id="payment-2"))
    print(f"{gateway.calls} calls, {len(gateway.payments)} payment")


if __name__ == "__main__":
    asyncio.run(main())
