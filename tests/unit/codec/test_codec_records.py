"""Dataclasses, Structs, NamedTuples, models and enums: exact state, no constructor."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest

from perdure.codec.json import JsonCodec
from perdure.errors import CodecError
from tests.unit.codec.examples import (
    Access,
    Box,
    Cached,
    Checked,
    Colour,
    Doubling,
    Invoice,
    Level,
    Line,
    Loose,
    Order,
    Page,
    Pair,
    Point,
    Point3,
    Struct,
    Unset,
    Word,
)

codec = JsonCodec()
NOON = dt.datetime(2024, 1, 2, 12, tzinfo=dt.UTC)

RECORDS: list[Any] = [
    Point(1),
    Point3(1, 2.0, z=9),
    Order(sku="a", at=NOON, price=Decimal("1.10"), lines=(Point(1), Point(2))),
    Doubling(2),
    Box(Box({1, 2})),
    Pair(1),
    Struct("o", dt.date(2024, 1, 2)),
    Colour.RED,
    Colour.GREEN,
    Level.LOW,
    Word.YES,
    Access.READ,
    Access.READ | Access.WRITE,
    Access(0),
    Line(day=dt.date(2024, 1, 2)),
    Invoice(at=NOON, total=Decimal("1.10"), lines=[Line(day=dt.date(2024, 1, 2))], no="7"),
    Loose.model_validate({"a": 1, "b": {"c": [1]}}),
]


@pytest.mark.parametrize("value", RECORDS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("shape", [lambda v: v, lambda v: [v], lambda v: {"k": (v, {1: v})}])
@pytest.mark.parametrize("annotated", [True, False])
def test_a_record_comes_back_equal(value: Any, shape: Callable[[Any], Any], annotated: bool) -> None:
    """SER-11 (temporalio/sdk-python#207, #126): equal object after recovery, annotated or not."""
    whole = shape(value)
    annotation = type(value) if annotated and whole is value else Any
    got = codec.decode(codec.encode(whole, annotation), annotation)
    assert got == whole
    assert repr(got) == repr(whole)


def test_a_datetime_field_stays_a_datetime() -> None:
    """SER-11 (temporalio/sdk-python#207): it came back as a date."""
    invoice = Invoice.model_validate({"at": "2024-01-02T00:00:00+02:00", "total": "1", "lines": [], "no": 3})
    got = codec.decode(codec.encode(invoice))
    assert type(got.at) is dt.datetime
    assert got.at == invoice.at
    assert got.at.utcoffset() == dt.timedelta(hours=2)
    assert (got.number, got.tags, got._secret) == (3, [], 7)
    assert got.model_fields_set == invoice.model_fields_set
    assert got.model_dump_json() == invoice.model_dump_json()


def test_no_constructor_runs_on_reading() -> None:
    """SER-11: InitVar and a __post_init__ that is not idempotent."""
    value = Doubling(2, factor=3)
    got = codec.decode(codec.encode(value), Doubling)
    assert (got.n, got.made_by) == (6, "post_init")


def test_a_cached_property_is_computed_again() -> None:
    """Its value may be anything, and is no state of its own."""
    value = Cached(1)
    assert value.lock
    got = codec.decode(codec.encode(value))
    assert got == value
    assert "lock" not in vars(got)


def test_a_field_that_was_never_set_stays_unset() -> None:
    """``field(init=False)`` without default."""
    got = codec.decode(codec.encode(Unset(1)))
    assert got.a == 1
    assert not hasattr(got, "b")


def test_a_struct_with_post_init_needs_an_annotation() -> None:
    """Its constructor has to run; a name in stored data must not be what runs it."""
    value = Checked(1)
    with pytest.raises(CodecError, match="__post_init__"):
        codec.encode(value)
    data = codec.encode([value], list[Checked])
    assert codec.decode(data, list[Checked]) == [value]
    with pytest.raises(CodecError, match="refused"):
        codec.decode(data)


def test_a_local_class_needs_an_annotation() -> None:
    """SER-05 (dbos-inc/dbos-transact-py#111): refused when written, not when read."""

    @dataclasses.dataclass
    class Local:
        n: int

    class Shade(enum.Enum):
        DARK = 1

    for value, annotation in ((Local(1), Local), ([Shade.DARK], list[Shade])):
        with pytest.raises(CodecError, match="annotate"):
            codec.encode(value)
        data = codec.encode(value, annotation)
        assert codec.decode(data, annotation) == value
        with pytest.raises(CodecError, match="not known here"):
            codec.decode(data)


def test_a_class_shadowed_by_another_of_its_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored name must lead back to this very class."""
    value = Point(1)
    monkeypatch.setattr("tests.unit.codec.examples.Point", Pair)
    with pytest.raises(CodecError, match="cannot be found by its name"):
        codec.encode(value)


def test_a_generic_model_is_found_by_its_annotation() -> None:
    """``Page[Line]`` is a class that no module holds."""
    page = Page[Line](items=[Line(day=dt.date(2024, 1, 2))])
    assert codec.decode(codec.encode(page, Page[Line]), Page[Line]) == page
    with pytest.raises(CodecError):
        codec.encode(page)


def test_classes_of_fields_are_handed_in_too() -> None:
    """An annotation reaches through fields, unions and containers."""

    class Inner(pydantic.BaseModel):
        n: int

    outer = dataclasses.make_dataclass("Outer", [("inner", list[Inner] | None)])
    value = {"k": (outer([Inner(n=1)]),)}
    annotation = dict[str, tuple[outer, ...]] | None  # type: ignore[valid-type]
    assert codec.decode(codec.encode(value, annotation), annotation) == value


def test_a_moved_module_is_found_by_the_annotation() -> None:
    """A file run as ``__main__`` stores another module name than the same file imported."""
    data = codec.encode(Point(1)).replace(b"tests.unit.codec.examples", b"__main__")
    with pytest.raises(CodecError, match=r"__main__:Point is not known here"):
        codec.decode(data)
    assert codec.decode(data, Point) == Point(1)


def test_a_field_with_default_may_be_added_and_a_field_removed() -> None:
    """A class that grew since; what is missing and needed names the field."""
    data = codec.encode(Point(1))
    assert codec.decode(data.replace(b'"y":0.5', b'"gone":0.5')) == Point(1)
    with pytest.raises(CodecError, match=r"field 'x'") as caught:
        codec.decode(codec.encode({"a": [Point(1)]}).replace(b'"x":1,', b""))
    assert caught.value.path == "$['a'][0]"
    assert caught.value.type_name == "tests.unit.codec.examples:Point"
    model = codec.encode(Line(day=dt.date(2024, 1, 2)))
    assert codec.decode(model.replace(b',"kind":"a"', b"")) == Line(day=dt.date(2024, 1, 2))


def test_plain_json_becomes_records_by_annotation() -> None:
    """What HTTP and the command line send."""
    line = b'{"day":"2024-01-02"}'
    assert codec.decode(line, Line) == Line(day=dt.date(2024, 1, 2))
    assert codec.decode(b"[" + line + b"]", list[Line] | None) == [Line(day=dt.date(2024, 1, 2))]
    assert codec.decode(b'{"x":1,"y":2}', Point) == Point(1, 2.0)
    assert codec.decode(b'"yes"', Word) is Word.YES
    assert codec.decode(b"[[1]]", list[Pair]) == [Pair(1)]
    assert codec.decode(b'{"orderId":"o","at":"2024-01-02"}', Struct) == Struct("o", dt.date(2024, 1, 2))


def test_a_mixture_of_tagged_and_plain_is_adapted() -> None:
    """A Python caller may pass a dict where a class is meant, holding what JSON lacks."""
    data = codec.encode({"sku": "a", "at": NOON, "price": Decimal("1.10")})
    assert codec.decode(data, Order) == Order(sku="a", at=NOON, price=Decimal("1.10"))


def test_an_unknown_class_names_what_is_missing() -> None:
    """The error says which class, and where in the value."""
    data = b'{"a":[{"$":"dataclass","t":"shop.models:Gone","v":{}}]}'
    with pytest.raises(CodecError, match=r"\$\['a'\]\[0\].*shop\.models:Gone") as caught:
        codec.decode(data, dict[str, list[Point]])
    assert caught.value.type_name == "shop.models:Gone"


def test_attributes_beside_the_fields_of_a_struct_are_kept() -> None:
    """Structs with ``dict=True`` keep attributes set besides fields."""
    value = _Open(1)
    value.more = (1, 2)  # type: ignore[attr-defined]
    got = codec.decode(codec.encode(value))
    assert (got.a, got.more) == (1, (1, 2))


class _Open(msgspec.Struct, dict=True):
    a: int
