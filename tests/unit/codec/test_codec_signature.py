"""Arguments of calls: canonical bytes, digests, errors that name the argument, CLI input."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec.base import open_chain
from perdure.codec.json import JsonCodec
from perdure.codec.signature import decode_call, digest, encode_call, from_json_input, signature_of
from perdure.errors import CodecError, UsageError
from tests.unit.codec.examples import Colour, Invoice, Level, Line, Order, Point

codec = JsonCodec()
NOON = dt.datetime(2024, 1, 2, 12, tzinfo=dt.UTC)


def plain(a: int, b: str = "b", c: Any = None) -> None: ...
def keyword_only(a: int, *, flag: bool, other: int = 1) -> None: ...
def positional_only(a: int, b: int = 2, /, c: int = 3) -> None: ...
def everything(a: int, /, b: int, *rest: Point, flag: bool = False, **more: dt.date) -> None: ...
def nothing() -> None: ...
def charge(order: Order, opts: dict[str, Any] | None = None) -> Decimal: ...  # type: ignore[empty-body]
def untyped(a, b=1): ...  # type: ignore[no-untyped-def]
def unresolved(a: Missing, b: dt.date) -> AlsoMissing: ...  # type: ignore[name-defined]  # noqa: F821


CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (plain, (1,), {}),
    (plain, (1, "x"), {}),
    (plain, (1,), {"c": (1, 2)}),
    (plain, (), {"c": {1: 2}, "a": 10**30}),
    (keyword_only, (1,), {"flag": True}),
    (positional_only, (1,), {"c": 4}),
    (positional_only, (1, 2, 3), {}),
    (everything, (1, 2, Point(1), Point(2)), {"flag": True, "a": NOON.date(), "z": NOON.date()}),
    (everything, (1,), {"b": 2}),
    (nothing, (), {}),
    (charge, (Order(sku="a", at=NOON, price=Decimal(1)), {"x": None}), {}),
    (untyped, ({"$": 1},), {"b": b"x"}),
    (unresolved, (Colour.RED, NOON.date()), {}),
]


@pytest.mark.parametrize("function, args, kwargs", CALLS)
def test_a_call_comes_back_as_the_same_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Whatever the kinds of parameters, the function gets what the caller passed."""
    signature = signature_of(function)
    stored = encode_call(signature, args, kwargs, codec)
    got_args, got_kwargs = decode_call(signature, stored, codec)
    assert signature.bind(got_args, got_kwargs) == signature.bind(args, kwargs)
    assert encode_call(signature, got_args, got_kwargs, codec) == stored


def test_one_call_gives_one_sequence_of_bytes() -> None:
    """Given by position or by name, in any order: the id of a run binds to its input."""
    signature = signature_of(plain)
    forms: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((1, "x", None), {}),
        ((1,), {"c": None, "b": "x"}),
        ((), {"b": "x", "c": None, "a": 1}),
    ]
    assert len({encode_call(signature, args, kwargs, codec) for args, kwargs in forms}) == 1


def test_a_default_is_not_filled_in() -> None:
    """A later default applies to calls that did not name it."""
    assert encode_call(signature_of(plain), (1,), {}, codec) == b'{"a":1}'


@given(st.dictionaries(st.text(), st.dictionaries(st.one_of(st.text(), st.integers()), st.integers())), st.randoms())
def test_the_digest_does_not_depend_on_the_order_of_dicts(value: dict[str, Any], random: Any) -> None:
    """Equal inputs are one input, as in Python."""
    items = [(key, dict(random.sample(list(inner.items()), len(inner)))) for key, inner in value.items()]
    random.shuffle(items)
    signature = signature_of(untyped)
    first = encode_call(signature, (value,), {}, codec)
    second = encode_call(signature, (dict(items),), {}, codec)
    assert digest(first) == digest(second)


@given(st.integers(), st.integers())
def test_the_digest_tells_values_apart(a: int, b: int) -> None:
    """A signed 64-bit number, as databases hold it."""
    first, second = (digest(encode_call(signature_of(untyped), (n,), {}, codec)) for n in (a, b))
    assert (first == second) == (a == b)
    assert -(2**63) <= first < 2**63


def test_the_digest_is_of_the_value_not_of_its_compression() -> None:
    """Transforms are undone first."""
    packed = open_chain(("json", "zstd"))
    signature = signature_of(untyped)
    data = encode_call(signature, (["x"] * 1000,), {}, packed)
    assert data[0] == 0
    assert digest(data, packed) == digest(encode_call(signature, (["x"] * 1000,), {}, codec))


def test_an_argument_that_cannot_be_stored_is_named() -> None:
    """UX-05 (dbos-inc/dbos-transact-py#435): function, argument, path and type."""
    signature = signature_of(charge)
    order = Order(sku="a", at=NOON, price=Decimal(1))
    with pytest.raises(CodecError) as caught:
        encode_call(signature, (order, {"lock": threading.Lock()}), {}, codec, label="start(charge)")
    assert str(caught.value) == "start(charge): argument 'opts' at opts['lock']: cannot store _thread.lock"
    assert (caught.value.path, caught.value.type_name) == ("$.opts['lock']", "_thread.lock")
    with pytest.raises(CodecError, match=r"^charge: argument 'order': cannot store _thread.lock$"):
        encode_call(signature, (threading.Lock(),), {}, codec)
    with pytest.raises(CodecError, match=r"argument '\*\*more' at \*\*more\['x'\]: cannot store"):
        encode_call(signature_of(everything), (1, 2), {"x": threading.Lock()}, codec)


def test_arguments_over_the_limit_together_are_refused() -> None:
    """SER-13 (temporalio/sdk-python#1285): one error giving size and limit."""
    small = open_chain(max_bytes=100)
    with pytest.raises(CodecError, match=r"^plain: value takes 15\d bytes, over the limit of 100"):
        encode_call(signature_of(plain), (1, "x" * 60, "y" * 70), {}, small)
    with pytest.raises(CodecError, match=r"argument 'b': value takes 202 bytes, over the limit of 100"):
        encode_call(signature_of(plain), (1, "x" * 200), {}, small)


@pytest.mark.parametrize(
    "function, args, kwargs, message",
    [
        (plain, (), {}, "call: missing argument 'a'"),
        (plain, (1, 2, 3, 4), {}, "call: takes at most 3 positional arguments, got 4"),
        (plain, (1,), {"a": 1}, "call: argument 'a' is given twice"),
        (plain, (1,), {"d": 1}, "call: has no argument 'd'; it takes a, b, c"),
        (keyword_only, (1,), {}, "call: missing argument 'flag'"),
        (keyword_only, (1, True), {}, "call: takes at most 1 positional arguments, got 2"),
        (positional_only, (), {"a": 1}, "call: has no argument 'a'; it takes c"),
        (nothing, (1,), {}, "call: takes at most 0 positional arguments, got 1"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    """Semantics 6: bad input gets one clear line and leaves nothing behind."""
    with pytest.raises(UsageError) as caught:
        encode_call(signature_of(function), args, kwargs, codec, label="call")
    assert str(caught.value) == message


def test_annotations_are_resolved_as_far_as_they_can_be() -> None:
    """An annotation that cannot be resolved is no error, and does not spoil the others."""
    signature = signature_of(unresolved)
    assert signature.hints == {"a": Any, "b": dt.date}
    assert signature.returns is Any
    assert signature_of(charge).returns is Decimal
    assert signature_of(untyped).hints == {"a": Any, "b": Any}


def test_the_annotation_of_a_nested_function_sees_what_it_closes_over() -> None:
    """Tests define workflows inside functions."""

    class Local:
        pass

    def inner(a: Local) -> None:
        Local()

    assert signature_of(inner).hints == {"a": Local}


def test_a_call_stored_for_other_parameters_is_refused() -> None:
    """The code changed: say which parameter, instead of a TypeError at the call."""
    with pytest.raises(CodecError, match="no longer takes 'gone'"):
        decode_call(signature_of(plain), b'{"a":1,"gone":2}', codec)
    with pytest.raises(CodecError, match="now also needs 'flag'"):
        decode_call(signature_of(keyword_only), b'{"a":1}', codec)
    with pytest.raises(CodecError, match="not the arguments"):
        decode_call(signature_of(plain), b"[1]", codec)


def invoice(invoice: Invoice, lines: list[Line] | None = None, at: dt.datetime | None = None) -> None: ...
def either(value: Point | Order, level: Level = Level.LOW) -> None: ...


@pytest.mark.parametrize(
    "function, text, args, kwargs",
    [
        (plain, '{"a": 1, "c": [1]}', (1,), {"c": [1]}),
        (plain, '[1, "x"]', (1, "x"), {}),
        (plain, "5", (5,), {}),
        (untyped, '"x"', ("x",), {}),
        (untyped, "null", (None,), {}),
        (untyped, '{"a": {"$": "set", "v": [1]}}', ({"$": "set", "v": [1]},), {}),
        (nothing, "{}", (), {}),
        (nothing, "[]", (), {}),
        (everything, '[1, 2, {"x": 3}]', (1, 2, Point(3)), {}),
        (everything, '{"b": 1, "d": "2024-01-02"}', None, None),
        (either, '{"value": {"x": 1}, "level": 1}', (Point(1), Level.LOW), {}),
        (
            invoice,
            '{"invoice": {"at": "2024-01-02T12:00:00Z", "total": "1.10", "lines": [], "no": 3}, "lines": null}',
            (Invoice(at=NOON, total=Decimal("1.10"), lines=[], no=3), None),
            {},
        ),
    ],
)
def test_input_from_the_command_line_becomes_a_call(
    function: Callable[..., Any], text: str, args: tuple[Any, ...] | None, kwargs: dict[str, Any] | None
) -> None:
    """API 4: object = keyword arguments, array = positional, anything else = the one argument."""
    signature = signature_of(function)
    if args is None or kwargs is None:
        with pytest.raises(UsageError, match="missing argument 'a'"):
            from_json_input(signature, text)
        return
    got = from_json_input(signature, text)
    assert got == (args, kwargs)
    assert decode_call(signature, encode_call(signature, *got, codec), codec) == got


@pytest.mark.parametrize(
    "function, text, message",
    [
        (plain, "{", "run(f): the input is not JSON"),
        (plain, "[" * 100_000, "run(f): the input is not JSON"),
        (plain, '["x"]', "run(f): argument 'a': Expected `int`, got `str`"),
        (plain, "[1, 2, 3, 4]", "run(f): takes at most 3"),
        (plain, '{"A": 1}', "run(f): has no argument 'A'"),
        (charge, '{"order": {"sku": 1}}', "run(f): argument 'order': "),
        (invoice, '{"invoice": {}}', "run(f): argument 'invoice': 4 validation errors"),
        (either, '{"value": {"y": "x"}}', "run(f): argument 'value': "),
        (either, '{"value": {"x": 1}, "level": 9}', "run(f): argument 'level': Invalid enum value 9"),
    ],
)
def test_wrong_input_is_refused_in_one_line(function: Callable[..., Any], text: str, message: str) -> None:
    """Semantics 6."""
    with pytest.raises(UsageError) as caught:
        from_json_input(signature_of(function), text, label="run(f)")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_functions_are_let_go() -> None:
    """A process that loads many versions of workflow code must not keep them all."""
    import gc  # noqa: PLC0415
    import weakref  # noqa: PLC0415

    def passing(a: int) -> int: ...  # type: ignore[empty-body]

    signature_of(passing)
    gone = weakref.ref(passing)
    del passing
    gc.collect()
    assert gone() is None
