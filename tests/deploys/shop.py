"""Three versions of a shop whose every step writes a constant of its own source to a ledger outside."""

from __future__ import annotations

from typing import Final

_HEAD: Final = """
import asyncio, os
import perdure
{imports}
LEDGER = os.environ["SHOP_LEDGER"]

def tell(what):
    line = f"{{perdure.step_info().run_id}} {{what}} {constant}\\n".encode()
    handle = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, line)
    os.close(handle)
    return "{constant}"
"""
_BODY: Final = """
@perdure.step
async def reserve(n: int) -> str:
    await asyncio.sleep(0.002)
    return tell("reserve")

@perdure.step
async def charge(n: int) -> str:
    await asyncio.sleep(0.002)
    return tell("charge")

@perdure.step
def ship(n: int) -> str:
    {late}
    return tell("ship")
"""
_FIRST: Final = """
@perdure.workflow(version="1.0.0")
async def fulfil(n: int) -> list[str]:
    seen = [await reserve(n)]
    await asyncio.sleep(0.3 + n % 7 * 0.4)
    seen.append(await charge(n))
    await asyncio.sleep(0.2)
    return [*seen, await ship.aio(n)]
"""
_SECOND: Final = """
@perdure.step
async def screen(n: int) -> str:
    return tell("screen")

@perdure.workflow(version="1.1.0")
async def fulfil(n: int) -> list[str]:
    seen = [await screen(n), await reserve(n)]
    await asyncio.sleep(0.3 + n % 7 * 0.4)
    return [*seen, *await asyncio.gather(charge(n), ship.aio(n))]
"""
_THIRD: Final = """
@perdure.workflow(version="2.0.0")
async def fulfil(n: int) -> list[str]:
    seen = []
    for step in (ship, charge, reserve):
        seen.append(await step.aio(n))
        await asyncio.sleep(0.2 + n % 5 * 0.2)
    return seen
"""
LABELS: Final = ("1.0.0", "1.1.0", "2.0.0")
_FLOWS: Final = (_FIRST, _SECOND, _THIRD)


def files(number: int) -> dict[str, str]:
    """Return the files of a version, by name. What a step needs is partly imported only when it runs."""
    label = LABELS[number]
    head = _HEAD.format(imports="from helper import NAME" if number else "", constant=label)
    late = "import late\n    assert late.LABEL == " + repr(label)
    body = _BODY.format(late=late)
    flow = _FLOWS[number]
    found = {"shop.py": head + body + flow, "late.py": f"LABEL = {label!r}\n"}
    return found | ({"helper.py": f"NAME = {label!r}\n"} if number else {})
