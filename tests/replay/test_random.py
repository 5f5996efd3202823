"""Random programs beside their own histories, crashes and take-overs included: never a false alarm."""

from __future__ import annotations

import pytest

from perdure.replay.verdict import VerdictKind as Kind
from tests.kernel.outside import enter, here
from tests.kernel.random_programs import act_out, grow
from tests.kernel.replay import again, record
from tests.replay.recorded import history_of, verdict

PROGRAMS = 12


@pytest.mark.parametrize("program", range(PROGRAMS))
def test_the_code_that_recorded_a_run_is_safe_for_it_wherever_it_crashed(program: int) -> None:
    outside = here()
    body = act_out.definition.function
    original = record(act_out, program, args=(grow(program),))
    for cut in range(2, len(original.log), max(1, len(original.log) // 6)):
        resumed = again(original, original.log[:cut], seed=program + cut)
        enter(outside)
        for upto in {cut, (cut + len(resumed.log)) // 2, len(resumed.log)}:
            told = verdict(body, history_of(resumed, resumed.log[:upto]))
            assert told.kind is Kind.SAFE, str(told)
