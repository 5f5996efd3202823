"""The world outside: stock, payment, shipping and mail, in a process that nobody kills.

Like a real provider it honours an idempotency key, takes its time, turns requests away now and then, and sometimes
does what was asked and then fails to answer. When it fails follows from the seed, the key and the number of the call.
Started as ``python -m perdure.demo.service LEDGER SOCKET SEED``; it ends when its standard input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from typing import Any

from perdure.demo.ledger import SERVICES, Ledger
from perdure.demo.lifeline import until_parent_ends

REFUSED, UNANSWERED = 0.06, 0.10
"""Below the first, a call is turned away; below the second, it is done and not answered."""
PATIENCE = 3
"""From this call of one key on, nothing fails any more."""


def fortune(seed: int, key: str, call: int) -> float:
    """Return a number in [0, 1) that decides the fate of one call. The same for the same question, always."""
    return int.from_bytes(blake2b(f"{seed}/{key}/{call}".encode(), digest_size=6).digest(), "big") / 2**48


class Service:
    """Answers one JSON object a line."""

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self._ledger = ledger
        self._seed = seed
        self._in_flight: Counter[int] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        try:
            request = json.loads(await reader.readline())
            answer = self._state() if request["service"] == "state" else await self._call(request)
            if answer is not None:
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):
            pass  # the caller is gone, or was cut off in the middle of its request
        finally:
            writer.close()

    def _state(self) -> dict[str, Any]:
        done = {service: self._ledger.done(service) for service in SERVICES}
        return {"done": done, "in_flight": {str(pid): count for pid, count in self._in_flight.items() if count}}

    async def _call(self, request: dict[str, Any]) -> dict[str, Any] | None:
        service, key, pid = request["service"], request["key"], request["pid"]
        luck = fortune(self._seed, key, 0)
        self._in_flight[pid] += 1
        try:
            await asyncio.sleep(0.02 + 0.06 * luck)
        finally:
            self._in_flight[pid] -= 1
        call = self._ledger.calls(service, key) + 1
        luck = fortune(self._seed, key, call) if call < PATIENCE else 1.0
        if luck < REFUSED:
            self._ledger.refuse(service, key)
            return {"error": "overloaded, try again"}
        outcome = "reply lost" if luck < UNANSWERED else "done"
        self._ledger.perform(service, key, request["order_id"], request["cents"], outcome, request["release"])
        return {"receipt": f"{service}-{request['order_id']}"} if outcome == "done" else None


async def main(ledger: str, socket: str, seed: str) -> None:
    """Serve until the parent process ends."""
    book = Ledger(Path(ledger))
    server = await asyncio.start_unix_server(Service(book, int(seed)).serve, socket)
    async with server:
        await until_parent_ends()
    book.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
