"""What cannot come back exactly is refused when it is written, with path and type."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import io
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perdure.codec.json import JsonCodec
from perdure.errors import CodecError
from tests.unit.codec.examples import Mapping2, Plain, Point, Text

codec = JsonCodec()


def _cycle() -> Any:
    value: list[Any] = []
    value.append({"again": value})
    return value


def _deep() -> Any:
    value: Any = 1
    for _ in range(5000):
        value = [value]
    return value


def _generator() -> Iterator[int]:
    yield 1


class _Zone(dt.tzinfo):
    def utcoffset(self, when: dt.datetime | None, /) -> dt.timedelta:
        return dt.timedelta(0)

    def dst(self, when: dt.datetime | None, /) -> None: ...

    def tzname(self, when: dt.datetime | None, /) -> str:
        return "mine"


@dataclasses.dataclass
class _Faulty(Exception):
    n: int


@dataclasses.dataclass
class _Computed:
    n: int

    @property
    def n2(self) -> int:
        return self.n


REFUSED: dict[str, Callable[[], Any]] = {
    "_thread.lock": threading.Lock,
    "generator": _generator,
    "function": lambda: lambda: 1,
    "_io.StringIO": io.StringIO,
    "tests.unit.codec.examples.Plain": Plain,
    "tests.unit.codec.examples.Text": lambda: Text("x"),
    "tests.unit.codec.examples.Mapping2": lambda: Mapping2(a=1),
    "collections.OrderedDict": OrderedDict,
    "collections.defaultdict": lambda: defaultdict(list),
    "collections.Counter": Counter,
    "collections.deque": deque,
    "type": lambda: Point,
    "module": lambda: threading,
    "ValueError": ValueError,
    "complex": lambda: 1j,
    "range": lambda: range(3),
    "memoryview": lambda: memoryview(b"x"),
    "object": object,
    "ellipsis": lambda: ...,
    "tests.unit.codec.test_codec_refusals._Zone": lambda: dt.datetime(2024, 1, 1, tzinfo=_Zone()),
    "tests.unit.codec.test_codec_refusals._Faulty": lambda: _Faulty(1),
}


async def _forgotten() -> int:
    return 1


def test_a_forgotten_await_is_named() -> None:
    forgotten = _forgotten()
    with pytest.raises(CodecError, match=r"^cannot store coroutine: it was never awaited; write `await`"):
        JsonCodec().encode(forgotten)
    forgotten.close()


@pytest.mark.parametrize("name", REFUSED)
def test_an_unstorable_value_is_refused_with_its_path(name: str) -> None:
    """SER-05 (dbos-inc/dbos-transact-py#111, PR#744): never stored as nonsense, at any depth."""
    value = REFUSED[name]()
    places: list[tuple[Any, str]] = [
        (value, "$"),
        ([1, value], "$[1]"),
        ({"opts": {"lock": value}}, "$['opts']['lock']"),
        ((1, {"a": [value]}), "$[1]['a'][0]"),
        (Point(1, value), "$.y"),
        ({1: value}, "$[1]"),
    ]
    for whole, path in places:
        with pytest.raises(CodecError) as caught:
            codec.encode(whole)
        assert caught.value.path == path
        assert caught.value.type_name == name
        assert (f"cannot store {name}" if path == "$" else f"{name} at {path}") in str(caught.value)
        assert " at $:" not in f"{caught.value}:"


def test_a_coroutine_is_refused() -> None:
    """SER-05."""
    coroutine = asyncio.sleep(0)
    with pytest.raises(CodecError, match="coroutine"):
        codec.encode(coroutine)
    coroutine.close()


@pytest.mark.parametrize("make", [_cycle, _deep])
def test_endless_nesting_is_refused(make: Callable[[], Any]) -> None:
    """SER-05, security S13: a value that contains itself, and JSON depth."""
    with pytest.raises(CodecError, match="contains itself"):
        codec.encode(make())


def test_the_path_of_a_deep_refusal_stays_short() -> None:
    """Messages are shown in one line."""
    with pytest.raises(CodecError) as caught:
        codec.encode(_deep())
    assert len(str(caught.value)) < 400


def test_depth_up_to_the_limit_comes_back() -> None:
    """What may be written may be read."""
    makers: tuple[Callable[[Any], Any], ...] = (
        lambda v: [v],
        lambda v: {"k": v},
        lambda v: (v,),
        lambda v: {1: v},
        Point,
    )
    for make in makers:
        value: Any = 1
        for _ in range(100):
            value = make(value)
        assert codec.decode(codec.encode(value)) == value
        with pytest.raises(CodecError):
            codec.encode(make(make(value)))


def test_keys_are_looked_at_too() -> None:
    """A dict key may be any hashable value."""
    with pytest.raises(CodecError, match=r"_thread\.lock"):
        codec.encode({threading.Lock(): 1})


def test_a_key_whose_repr_raises_does_not_hide_the_error() -> None:
    """The message is made from user objects."""

    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError

    with pytest.raises(CodecError, match="Rude"):
        codec.encode({Rude(): 1})


def test_a_class_whose_fields_cannot_be_read_is_refused() -> None:
    """The error is about the value, not a crash of the engine."""

    @dataclasses.dataclass
    class Moody:
        n: int

        def __getattribute__(self, name: str) -> Any:
            if name == "n":
                raise RuntimeError("not today")
            return object.__getattribute__(self, name)

    with pytest.raises(CodecError, match="not today"):
        codec.encode([Moody(1)], list[Moody])


def test_a_property_in_place_of_a_field_is_refused() -> None:
    """Setting it on reading would run code of the class."""
    _Computed.n = _Computed.n2  # type: ignore[assignment]
    try:
        value = object.__new__(_Computed)
        with pytest.raises(CodecError, match="_Computed"):
            codec.encode(value)
    finally:
        del _Computed.n  # type: ignore[misc]
