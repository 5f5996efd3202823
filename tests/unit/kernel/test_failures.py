"""Which recorded failures are behind the one that ended a run."""

from __future__ import annotations

from perdure.kernel.failure import FailureTrail


def test_a_failure_of_the_body_itself_has_no_recorded_cause() -> None:
    assert FailureTrail().cause(ValueError("mine")) is None


def test_an_error_raised_from_a_recorded_one_has_it_as_cause() -> None:
    trail, recorded = FailureTrail(), ValueError("recorded")
    trail.sign(recorded, 7, "0.1")
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = recorded
    cause = trail.cause(wrapped)
    assert cause is not None
    assert (cause.seqs, cause.op) == ((7,), "0.1")


def test_errors_that_name_each_other_as_cause_end_the_search() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert FailureTrail().cause(first) is None


def test_all_recorded_members_of_a_group_are_its_cause() -> None:
    trail, one, two = FailureTrail(), ValueError("one"), ValueError("two")
    trail.sign(two, 9, "2")
    trail.sign(one, 5, "1")
    cause = trail.cause(ExceptionGroup("both", [two, one, KeyError("the body's own")]))
    assert cause is not None
    assert (cause.seqs, cause.op) == ((5, 9), "1")


def test_a_group_without_recorded_members_is_traced_to_what_it_was_raised_from() -> None:
    trail, recorded = FailureTrail(), ValueError("recorded")
    trail.sign(recorded, 3, "0")
    group = ExceptionGroup("clean-up", [KeyError("the body's own")])
    group.__context__ = recorded
    cause = trail.cause(group)
    assert cause is not None
    assert cause.seqs == (3,)


def test_what_a_body_suppressed_is_no_cause() -> None:
    trail, recorded = FailureTrail(), ValueError("recorded")
    trail.sign(recorded, 3, "0")
    error = RuntimeError("from None")
    error.__context__, error.__suppress_context__ = recorded, True
    assert trail.cause(error) is None
