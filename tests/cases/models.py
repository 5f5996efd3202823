"""Values with every feature of dataclasses and pydantic models that is promised to come back the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

AT = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)


class Inner(BaseModel):
    amount: Decimal
    on: date


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, populate_by_name=True)

    at: datetime
    on: date
    price: Decimal
    inner: Inner
    either: int | str
    kind: Literal["a", "b"] = "a"
    made: list[int] = Field(default_factory=list)
    shown: str = Field(alias="Shown")


@dataclass(slots=True, kw_only=True)
class Base:
    id: UUID
    at: datetime


@dataclass(slots=True, kw_only=True)
class Derived(Base):
    wait: timedelta
    rest: dict[str, tuple[int, ...]] = field(default_factory=dict)


def model() -> Model:
    inner = Inner(amount=Decimal("1.10"), on=date(2026, 2, 28))
    return Model(at=AT, on=date(2026, 3, 1), price=Decimal("0.30"), inner=inner, either="7", made=[1], Shown="x")


def derived() -> Derived:
    return Derived(id=UUID(int=7), at=AT, wait=timedelta(microseconds=1), rest={"k": (1, 2)})
