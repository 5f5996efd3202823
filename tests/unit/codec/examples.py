"""Classes of user code that the codec tests store; at the top of a module, as most are."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import threading
from decimal import Decimal
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
import pydantic

T = TypeVar("T")


class Colour(enum.Enum):
    RED = 1
    GREEN = (1, "g")
    ROUGE = 1  # noqa: PIE796 - an alias


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    sku: str
    at: dt.datetime
    price: Decimal
    lines: tuple[Point, ...] = ()


@dataclasses.dataclass
class Point3(Point):
    z: int = dataclasses.field(default=3, kw_only=True)


@dataclasses.dataclass
class Doubling:
    """Its constructor is not idempotent: calling it again would double once more."""

    n: int
    factor: dataclasses.InitVar[int] = 2

    def __post_init__(self, factor: int) -> None:
        self.n *= factor
        self.made_by = "post_init"


@dataclasses.dataclass
class Cached:
    n: int

    @functools.cached_property
    def lock(self) -> Any:
        return threading.Lock()


@dataclasses.dataclass
class Box(Generic[T]):
    item: T


@dataclasses.dataclass
class Unset:
    a: int
    b: int = dataclasses.field(init=False)


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Struct(msgspec.Struct, frozen=True, rename="camel", tag="s"):
    order_id: str
    at: dt.date


class Checked(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        self.n += 1


class Line(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    day: dt.date
    kind: Literal["a", "b"] = "a"


class Invoice(pydantic.BaseModel):
    at: dt.datetime
    total: Decimal
    lines: list[Line]
    number: int | str = pydantic.Field(alias="no")
    tags: list[str] = pydantic.Field(default_factory=list)
    _secret: int = pydantic.PrivateAttr(default=7)


class Loose(pydantic.BaseModel, extra="allow"):
    a: int


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Plain:
    """Of no kind that can be stored."""

    def __init__(self) -> None:
        self.x = 1


class Text(str):
    """A subclass that would come back as its base."""

    __slots__ = ()


class Mapping2(dict[str, int]):
    """Likewise."""
