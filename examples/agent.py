"""An agent: a model in a loop, with each answer and each tool call a step. A crash never repeats what was paid for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import perdure


@dataclass(frozen=True)
class Message:
    """One line of the conversation."""

    role: str
    text: str


@dataclass(frozen=True)
class Reply:
    """What the model wants: tools called, or to be done."""

    text: str
    calls: list[tuple[str, str]] = field(default_factory=list)


@perdure.step(retry=perdure.Retry(attempts=4), timeout="2m")
async def think(conversation: list[Message]) -> Reply:
    """Ask the model. This one is made of paper; put the client of yours here."""
    print(f"thinking about {len(conversation)} messages")
    found = [message.text for message in conversation if message.role == "tool"]
    if not found:
        return Reply("I look at both cities.", [("weather", "Oslo"), ("weather", "Rome")])
    if len(found) == 2:
        return Reply("Now the flight.", [("flight", "Rome")])
    return Reply(f"Go to Rome: {'; '.join(found)}.")


@perdure.step(retry=perdure.Retry(attempts=3))
async def weather(city: str) -> str:
    print(f"tool: weather in {city}")
    return f"{city} has {'rain' if city == 'Oslo' else 'sun'}"


@perdure.step(mode="at_most_once")  # a booking must not happen twice, even if that means asking somebody
async def flight(city: str) -> str:
    print(f"tool: booking a flight to {city}")
    return f"seat 12A to {city} is booked"


TOOLS = {"weather": weather, "flight": flight}


@perdure.workflow
async def agent(task: str, limit: int = 10) -> str:
    conversation = [Message("user", task)]
    for _ in range(limit):
        reply = await think(conversation)
        conversation.append(Message("assistant", reply.text))
        if not reply.calls:
            return reply.text
        answers = await asyncio.gather(*(TOOLS[tool](argument) for tool, argument in reply.calls))
        conversation += [Message("tool", answer) for answer in answers]
    return "no answer within the limit"


async def main() -> None:
    async with perdure.Engine("sqlite:///agent.db", [agent]) as engine:
        print(await engine.run(agent, "Where should I go?", id="trip-1"))


if __name__ == "__main__":
    asyncio.run(main())
