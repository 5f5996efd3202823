"""What asyncio offers works in a body, and comes out the same after a crash at any point."""

from __future__ import annotations

import pytest

from tests.kernel.programs import EVERY, SETTLED
from tests.kernel.replay import check_everywhere

SEEDS = 4


@pytest.mark.parametrize("name", sorted(EVERY))
def test_program_replays_from_every_crash_point(name: str) -> None:
    for seed in range(SEEDS):
        check_everywhere(EVERY[name], seed, settled=name in SETTLED)
