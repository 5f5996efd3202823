"""Random programs, each under many timings, replayed from their crash points."""

from __future__ import annotations

import pytest

from tests.kernel.random_programs import act_out, grow
from tests.kernel.replay import check_everywhere

PROGRAMS = 16
SEEDS = 60
APART = 31
"""Crash points tried per commit: each such, beginning elsewhere for every seed. A nightly campaign tries all."""


@pytest.mark.parametrize("program", range(PROGRAMS))
def test_random_program_replays_from_its_crash_points(program: int) -> None:
    tree = grow(program)
    for seed in range(SEEDS):
        check_everywhere(act_out, seed, args=(tree,), settled=False, every=APART)


@pytest.mark.nightly
@pytest.mark.parametrize("program", range(200))
def test_random_program_replays_from_every_crash_point(program: int) -> None:
    tree = grow(program)
    for seed in range(SEEDS if program < PROGRAMS else 5):
        check_everywhere(act_out, seed, args=(tree,), settled=False)
