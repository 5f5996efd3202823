"""The error tree: codes, messages, and that errors survive copying."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from perdure import errors
from perdure.errors import (
    CodecError,
    Diverged,
    IdConflict,
    NotInSnapshot,
    PerdureError,
    RunCancelled,
    RunFailed,
    RunNotFound,
    RunParked,
    RunTerminated,
    RunTimedOut,
    StepFailed,
    StepInterrupted,
    StepTimedOut,
    StoreUnavailable,
    UsageError,
)

EXAMPLES: list[PerdureError] = [
    PerdureError("it broke", run_id="r-1", step="charge"),
    UsageError("no such workflow 'chrage'", hint="did you mean 'charge'?"),
    RunFailed("r-1", type_name="shop.Declined", message="no funds", traceback_text="Trace"),
    RunCancelled("r-1", reason="customer asked"),
    RunTimedOut("r-1", timeout_s=30),
    RunTerminated("r-1"),
    RunParked("r-1", reason="no code for version 1.2.0"),
    RunNotFound("r-1"),
    IdConflict("r-1"),
    StepFailed("no funds", type_name="shop.Declined", details={"code": 4}, step="charge"),
    StepTimedOut("charge", timeout_s=0.5, run_id="r-1"),
    StepInterrupted("charge", run_id="r-1"),
    StoreUnavailable("cannot connect to localhost:5432"),
    CodecError("cannot store lock", path="$.a", type_name="_thread.lock", run_id="r-1"),
    NotInSnapshot("'shop.added' is not in order@1.3.0's snapshot.", name="shop.added"),
    Diverged(expected="step charge", found="timer", run_id="r-1"),
]


def _classes() -> list[type[PerdureError]]:
    return [getattr(errors, name) for name in errors.__all__]


def test_every_class_has_its_own_code() -> None:
    """INV-1: codes are unique, and stable in form."""
    codes = [cls.code for cls in _classes()]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z_]+", code) for code in codes)


def test_the_drawing_in_the_docstring_is_the_tree() -> None:
    """The tree that readers see lists every class with its parent and code."""
    drawn: dict[str, tuple[int, str]] = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^([ │├└─]*)([A-Z]\w+)\s+([a-z_]+)", line)
        if found and found[2] in errors.__all__:
            drawn[found[2]] = (len(found[1]), found[3])
    assert set(drawn) == set(errors.__all__)
    parents: list[tuple[int, str]] = []
    for name, (indent, code) in drawn.items():
        cls = getattr(errors, name)
        assert cls.code == code
        while parents and parents[-1][0] >= indent:
            parents.pop()
        if parents:
            assert cls.__bases__[0] is getattr(errors, parents[-1][1])
        parents.append((indent, name))


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("duplicate", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])  # noqa: S301 - our own
def test_errors_survive_copying(error: PerdureError, duplicate: object) -> None:
    """INV-3: process pools pickle errors; keyword-only constructors must not break that."""
    twin = duplicate(error)  # type: ignore[operator]
    assert type(twin) is type(error)
    assert vars(twin) == vars(error)
    assert str(twin) == str(error)


def test_errors_say_the_module_they_are_imported_from() -> None:
    """INV-4: a stored error is found again by this name, whatever file its class is in."""
    assert {cls.__module__ for cls in _classes()} == {"perdure.errors"}


def test_errors_pickled_by_earlier_releases_are_read() -> None:
    """INV-3: pickles name the function that rebuilds, and values of the pickle codec are kept."""
    old = pickle.dumps(RunNotFound("r-1")).replace(b"perdure.errors.root", b"perdure.errors")
    old = old.replace(b"\x8c\x13perdure.errors", b"\x8c\x0eperdure.errors")
    error = pickle.loads(re.sub(rb"\x95.{8}", b"", old, flags=re.DOTALL))  # noqa: S301 - our own
    assert str(error) == str(RunNotFound("r-1"))


def test_a_message_names_run_step_and_what_to_do() -> None:
    """INV-2."""
    error = PerdureError("it broke", run_id="r-1", step="charge", hint="try again")
    assert str(error) == "it broke (run 'r-1', step 'charge'); try again"


def test_a_message_does_not_repeat_the_run() -> None:
    """INV-2: the text of a `RunFailed` names the run already."""
    error = RunFailed("r-1", type_name="shop.Declined", message="no funds")
    assert str(error) == "run 'r-1' failed: shop.Declined: no funds"
    assert error.run_id == "r-1"


def test_an_error_without_text_still_says_something() -> None:
    """INV-2."""
    assert str(UsageError()) == "usage"
    assert "r-9" in str(IdConflict("r-9"))


def test_all_derive_from_one_root() -> None:
    """One ``except PerdureError`` catches everything this library raises."""
    assert all(issubclass(cls, PerdureError) for cls in _classes())
