"""A data pipeline: clean, checkpoint, score, report. Which airports of the Pacific are the loneliest?

The data set is the public list of airports in the package ``airportsdata``: pip install airportsdata
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from math import asin, cos, radians, sin, sqrt

import airportsdata

import perdure

BATCH = 50


@dataclass(frozen=True)
class Airport:
    """A cleaned row."""

    code: str
    name: str
    latitude: float
    longitude: float


@dataclass(frozen=True)
class Score:
    """How far it is to the nearest other airport."""

    airport: Airport
    kilometres: int


def distance(a: Airport, b: Airport) -> float:
    lat_a, lat_b = radians(a.latitude), radians(b.latitude)
    east = sin(radians(b.longitude - a.longitude) / 2) ** 2
    return 12_742 * asin(sqrt(min(1.0, sin((lat_b - lat_a) / 2) ** 2 + cos(lat_a) * cos(lat_b) * east)))


@perdure.step
def clean(region: str) -> list[Airport]:
    return [
        Airport(row["iata"], row["name"], row["lat"], row["lon"])
        for row in airportsdata.load("ICAO").values()
        if row["tz"].startswith(region) and row["iata"] and (row["lat"], row["lon"]) != (0, 0)
    ]


@perdure.step(store_input=False)  # the input is large, and recorded already: as the result of `clean`
def score(batch: list[Airport], everything: list[Airport]) -> list[Score]:
    return [Score(one, round(min(distance(one, other) for other in everything if other != one))) for one in batch]


@perdure.step(store_input=False)
def report(scores: list[Score]) -> list[str]:
    loneliest = sorted(scores, key=lambda each: -each.kilometres)[:5]
    return [f"{each.kilometres:>5} km  {each.airport.code}  {each.airport.name}" for each in loneliest]


@perdure.workflow
async def lonely_airports(region: str) -> list[str]:
    airports = await clean.aio(region)
    perdure.checkpoint("cleaned", {"airports": len(airports)})
    batches = [airports[first : first + BATCH] for first in range(0, len(airports), BATCH)]
    scores = await asyncio.gather(*(score.aio(batch, airports) for batch in batches))
    perdure.checkpoint("scored")
    return await report.aio([each for batch in scores for each in batch])


async def main() -> None:
    async with perdure.Engine("sqlite:///pipeline.db", [lonely_airports]) as engine:
        print("\n".join(await engine.run(lonely_airports, "Pacific/", id="lonely-airports")))


if __name__ == "__main__":
    asyncio.run(main())
