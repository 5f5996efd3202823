"""Exceptions to bytes and back: same class where it is here, text always."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any, Self

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codec.base import Codec, open_chain
from perdure.codec.exception import TRACEBACK, decode_exception, encode_exception, read_failure, traceback_of
from perdure.codec.json import JsonCodec
from perdure.errors import IdConflict, PerdureError, RunFailed, StepFailed, StepTimedOut

plain = JsonCodec()
CODECS = {
    "json": plain,
    "json+zstd": open_chain(("json", "zstd")),
    "pickle": open_chain(("pickle",), {"pickle": {"key": b"k" * 32}}),
}


class TwoRequired(Exception):
    def __init__(self, *, account: str, cents: int) -> None:
        self.account = account
        self.cents = cents

    def __str__(self) -> str:
        return f"{self.account}: {self.cents}"


class Rude(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Slotted(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Failures(ExceptionGroup[Exception]):
    def __new__(cls, *_: Any, **__: Any) -> Self:
        return super().__new__(cls, "made up", [ValueError("x")])


def raised(error: BaseException) -> BaseException:
    """Return an exception that has been raised, with a traceback."""
    try:
        raise error
    except BaseException as caught:
        return caught


def again(error: BaseException, codec: Codec = plain) -> Exception:
    return decode_exception(encode_exception(error, codec), codec, run_id="r-1", step="charge")


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_the_real_error_is_what_is_stored(codec: Codec) -> None:
    """SER-04 (dbos-inc/dbos-transact-py#730): for each codec; type, text, and the step's line."""
    error = again(raised(ValueError("boom")), codec)
    assert type(error) is ValueError
    assert str(error) == "boom"
    failure = read_failure(encode_exception(raised(ValueError("boom")), codec), codec)
    assert (failure.type_name, failure.message) == ("ValueError", "boom")
    assert "in raised" in failure.traceback_text
    assert getattr(error, TRACEBACK) == failure.traceback_text


def test_a_constructor_with_required_arguments_is_not_called() -> None:
    """SER-01 (dbos-inc/dbos-transact-py#371): looking at the failure raised TypeError."""
    error = again(raised(TwoRequired(account="a", cents=5)))
    assert isinstance(error, TwoRequired)
    assert (error.account, error.cents, str(error)) == ("a", 5, "a: 5")


def test_an_unknown_class_is_a_step_failure_with_type_and_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """SER-01: read from another process that lacks the class."""
    data = encode_exception(raised(TwoRequired(account="a", cents=5)), plain)
    monkeypatch.delattr(sys.modules[__name__], "TwoRequired")
    error = decode_exception(data, plain, run_id="r-1", step="charge")
    assert isinstance(error, StepFailed)
    assert error.type_name == f"{__name__}.TwoRequired"
    assert error.message == "a: 5"
    assert error.details == {"account": "a", "cents": 5}
    assert (error.run_id, error.step) == ("r-1", "charge")
    assert "in raised" in error.traceback_text


def test_a_local_class_is_a_step_failure() -> None:
    """First run and replay must agree, so it is one on the first run as well."""

    class Local(Exception):
        pass

    error = again(raised(Local("x")))
    assert isinstance(error, StepFailed)
    assert error.type_name.endswith("<locals>.Local")


BUILTINS: list[Exception] = [
    ValueError(),
    KeyError(("a", 1)),
    ZeroDivisionError("division by zero"),
    FileNotFoundError(2, "No such file", "a.txt"),
    OSError(28, "No space left"),
    ConnectionResetError("peer"),
    TimeoutError(),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    StopIteration(3),
    StopAsyncIteration(),
    ImportError("no", name="n", path="p"),
    ModuleNotFoundError("no", name="n"),
    AttributeError("no", name="n"),
    NameError("no", name="n"),
    SyntaxError("bad", ("f.py", 1, 2, "x x", 1, 3)),
    json.JSONDecodeError("bad", "{", 1),
    subprocess.CalledProcessError(1, ["ls"], b"out", b"err"),
    RecursionError("deep"),
    ArithmeticError(1, 2.5, None, "x", (1,), {"a": {1}}),
    TwoRequired(account="", cents=0),
    Slotted(4),
    IdConflict("r-1"),
    StepTimedOut("charge", timeout_s=1.5, run_id="r-1"),
    RunFailed("r-1", type_name="a.B", message="m", traceback_text="t"),
]


@pytest.mark.parametrize("original", BUILTINS, ids=lambda error: type(error).__name__)
def test_a_known_class_comes_back_with_its_state(original: Exception) -> None:
    """What the workflow catches on replay is what it caught on the first run."""
    error = again(raised(original))
    assert type(error) is type(original)
    assert error.args == original.args
    assert str(error) == str(original)
    state = {name: value for name, value in vars(error).items() if name != TRACEBACK}
    assert state == vars(original)
    names = ("errno", "filename", "name", "path", "msg", "lineno", "value", "code", "start", "reason")
    for name in names:
        assert getattr(error, name, None) == getattr(original, name, None)


def test_a_class_that_refuses_new_attributes_comes_back() -> None:
    original = Frozen(3)
    BaseException.__setattr__(original, "__notes__", ["noted"])
    BaseException.__setattr__(original, "__cause__", Frozen(4))
    back = decode_exception(encode_exception(original, plain), plain)
    assert type(back) is Frozen
    assert (back.code, back.args, back.__notes__) == (3, (3,), ["noted"])
    assert isinstance(back.__cause__, Frozen)
    assert back.__cause__.code == 4


def test_an_exception_with_state_in_foreign_code_is_a_step_failure() -> None:
    """Pydantic keeps the state of its errors where nobody can set it."""
    with pytest.raises(pydantic.ValidationError) as caught:
        pydantic.TypeAdapter(int).validate_python("x")
    error = again(caught.value)
    assert isinstance(error, StepFailed)
    assert error.type_name == "pydantic_core._pydantic_core.ValidationError"
    assert "valid integer" in error.message


def test_what_cannot_be_stored_is_named_and_left_out() -> None:
    """SER-03 (celery/celery PR#835, dbos-inc/dbos-transact-java PR#228): lock, socket, lambda."""
    with socket.socket() as open_socket:
        original = ValueError("text", threading.Lock(), open_socket, lambda: 1)
        original.kept = {1, 2}  # type: ignore[attr-defined]
        original.lock = threading.Lock()  # type: ignore[attr-defined]
        original.__cause__ = KeyError(threading.Lock())
        data = encode_exception(raised(original), plain)
    error = decode_exception(data, plain)
    assert type(error) is ValueError
    assert error.args == ("text", "<lock, not stored>", "<socket, not stored>", "<function, not stored>")
    assert error.kept == {1, 2}  # type: ignore[attr-defined]
    assert read_failure(data, plain).dropped == ("args[1]", "args[2]", "args[3]", "lock")
    assert type(error.__cause__) is KeyError


def test_a_text_that_cannot_be_made_does_not_stop_storing() -> None:
    """SER-03: ``__str__`` and ``__repr__`` that raise."""
    data = encode_exception(raised(Rude(1)), plain)
    assert read_failure(data, plain).message == "<its __str__ raised RuntimeError>"
    error = decode_exception(data, plain)
    assert type(error) is Rude
    assert error.args == (1,)


def test_a_cyclic_context_ends() -> None:
    """SER-03."""
    first, second = ValueError("first"), KeyError("second")
    first.__context__, second.__context__ = second, first
    error = again(raised(first))
    assert type(error.__context__) is KeyError
    assert error.__context__.__context__ is None
    first.__cause__ = first
    assert again(first).__cause__ is None


def test_a_group_keeps_its_members() -> None:
    """SER-03: an ExceptionGroup of three, one of them a group, one unknown."""

    class Local(Exception):
        pass

    original = ExceptionGroup("three", [ValueError(1), Local(2), ExceptionGroup("inner", [OSError(3, "x")])])
    original.add_note("while packing")
    error = again(raised(original))
    assert isinstance(error, ExceptionGroup)
    assert error.message == "three"
    assert [type(member) for member in error.exceptions] == [ValueError, StepFailed, ExceptionGroup]
    inner = error.exceptions[2]
    assert isinstance(inner, ExceptionGroup)
    assert isinstance(inner.exceptions[0], OSError)
    assert inner.exceptions[0].errno == 3
    assert error.__notes__ == ["while packing"]


def test_a_subclass_of_a_group_is_not_constructed() -> None:
    """Its ``__new__`` would make another group."""
    original = ExceptionGroup.__new__(Failures, "real", [KeyError("k")])
    error = again(raised(original))
    assert isinstance(error, Failures)
    assert error.message == "real"
    assert isinstance(error.exceptions[0], KeyError)


def test_cause_context_and_suppression_are_kept() -> None:
    """``raise ... from`` is told from an exception in an ``except`` block."""
    try:
        try:
            raise KeyError("first")
        except KeyError as first:
            raise ValueError("second") from first
    except ValueError as caught:
        error = again(caught)
    assert isinstance(error.__cause__, KeyError)
    assert error.__suppress_context__
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second") from None
    except ValueError as caught:
        error = again(caught)
    assert error.__cause__ is None
    assert error.__context__ is None
    assert error.__suppress_context__


def test_a_cancellation_in_the_chain_is_kept() -> None:
    """``asyncio.timeout`` raises TimeoutError from CancelledError."""
    original = TimeoutError()
    original.__cause__ = asyncio.CancelledError()
    assert isinstance(again(original).__cause__, asyncio.CancelledError)


@pytest.mark.parametrize(
    "cls", [asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, BaseException]
)
def test_what_is_no_failure_is_never_stored_as_one(cls: type[BaseException]) -> None:
    """Semantics 5."""
    with pytest.raises(TypeError, match="never recorded"):
        encode_exception(cls(), plain)
    if not issubclass(cls, Exception):
        with pytest.raises(TypeError):
            encode_exception(BaseExceptionGroup("g", [cls()]), plain)


def test_a_long_message_is_cut_with_a_mark() -> None:
    """SER-14 (celery/django-celery PR#12): 5 MB of text."""
    text = "head" + "x" * 5_000_000 + "tail"
    data = encode_exception(raised(ValueError(text)), plain)
    assert len(data) < 300_000
    failure = read_failure(data, plain)
    assert "characters cut" in failure.message
    assert failure.message.startswith("head")
    assert failure.message.endswith("tail")
    assert "characters cut" in str(decode_exception(data, plain))


def test_a_deep_traceback_is_cut_with_a_mark() -> None:
    """SER-14: 900 frames."""

    def even(n: int) -> None:
        if n == 0:
            raise ValueError("x" * 3000)
        (odd if n % 2 else even_too)(n - 1)

    def odd(n: int) -> None:
        even(n)

    def even_too(n: int) -> None:
        even(n)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 1000)
    try:
        with pytest.raises(ValueError, match="x") as caught:
            even(450)
        data = encode_exception(caught.value, plain)
    finally:
        sys.setrecursionlimit(limit)
    text = read_failure(data, plain).traceback_text
    assert len(text) < 70_000
    assert "characters cut" in text
    assert text.rstrip().endswith("x")


def test_a_failure_fits_under_the_size_limit() -> None:
    """SER-13 (temporalio/sdk-python#1285): the failure must be storable where the value was not."""
    codec = open_chain(max_bytes=30_000)
    original = raised(ValueError("x" * 100_000, "y" * 100_000))
    original.more = ["z" * 1000] * 1000  # type: ignore[attr-defined]
    error = again(original, codec)
    assert type(error) is ValueError
    assert "characters cut" in str(error)


def test_a_raised_on_exception_shows_where_it_began() -> None:
    """SER-04: raised in a step, caught and raised again in the workflow, stored twice."""

    def in_the_step() -> None:
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom") as step:
        in_the_step()
    first = again(step.value)

    def in_the_workflow() -> None:
        raise first

    with pytest.raises(ValueError, match="boom") as workflow:
        in_the_workflow()
    second = again(workflow.value)
    text = getattr(second, TRACEBACK)
    assert text.index("in in_the_step") < text.index("in in_the_workflow")
    assert TRACEBACK not in read_failure(encode_exception(second, plain), plain).details
    with pytest.raises(KeyError) as other:
        raise KeyError("other") from first
    text = traceback_of(other.value)
    assert text.index("in in_the_step") < text.index("direct cause") < text.index("KeyError")


def test_long_chains_and_wide_groups_are_bounded() -> None:
    """Storing must end, and reading must not exhaust the stack."""
    error: Exception = ValueError(0)
    for number in range(3000):
        following = ValueError(number)
        following.__context__ = error
        error = following
    assert len(encode_exception(error, plain)) < 100_000
    wide = again(ExceptionGroup("wide", [ValueError(n) for n in range(5000)]))
    assert isinstance(wide, ExceptionGroup)
    assert 1 < len(wide.exceptions) < 100


def test_damaged_bytes_are_refused() -> None:
    """They are no exception at all."""
    for data in (b"1", b"{}", b'{"type":1}', b"[]", b"null", b'{"type":"a:b","cause":3}'):
        with pytest.raises(PerdureError):
            decode_exception(data, plain)


@given(st.text(st.characters(exclude_categories=())), st.lists(st.one_of(st.text(), st.integers(), st.floats())))
def test_any_text_and_arguments_come_back(text: str, args: list[Any]) -> None:
    """SER-06, SER-09: NUL, surrogates and emoji in messages."""
    original = ArithmeticError(text, *args)
    error = again(original)
    assert repr(error.args) == repr(original.args)
    assert read_failure(encode_exception(original, plain), plain).message == str(original)
