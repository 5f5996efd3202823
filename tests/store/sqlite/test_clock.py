"""The common clock: wall-clock jumps do not move it, a boot or an idle file sets it, and it never goes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.store.base import StoreOptions
from perdure.store.sqlite import SqliteStore
from perdure.store.sqlite.clock import Clock, Machine, this_machine
from perdure.testing.author import Author, worker

SECOND = 1_000_000
NOON = 1_700_000_000 * SECOND


class Time:
    """A machine whose clocks the test sets."""

    def __init__(self) -> None:
        self.wall = NOON
        self.ticks = 500 * SECOND

    def machine(self, boot_id: str = "boot") -> Machine:
        return Machine(boot_id, "host", lambda: self.wall, lambda: self.ticks)

    def pass_by(self, seconds: int) -> None:
        self.wall += seconds * SECOND
        self.ticks += seconds * SECOND


@pytest.fixture
def time() -> Time:
    return Time()


def opened(path: Path, machine: Machine) -> SqliteStore:
    store = SqliteStore(path / "runs.db", StoreOptions(), machine)
    store.open()
    return store


def test_a_new_file_starts_at_the_wall_clock(tmp_path: Path, time: Time) -> None:
    store = opened(tmp_path, time.machine())
    assert store.now() == NOON
    time.pass_by(10)
    assert store.now() == NOON + 10 * SECOND
    store.close()


@pytest.mark.parametrize("jump", [-3600, 3600, -(10**9)])
def test_a_jump_of_the_wall_clock_does_not_move_it(tmp_path: Path, time: Time, jump: int) -> None:
    store = opened(tmp_path, time.machine())
    store.register(worker("w1", store.now()))
    time.pass_by(10)
    time.wall += jump * SECOND
    other = opened(tmp_path, time.machine())
    assert store.now() == other.now() == NOON + 10 * SECOND
    store.close()
    other.close()


def test_while_nobody_works_opening_follows_the_wall_clock(tmp_path: Path, time: Time) -> None:
    opened(tmp_path, time.machine()).close()
    time.wall += 3600 * SECOND
    store = opened(tmp_path, time.machine())
    assert store.now() == NOON + 3600 * SECOND
    store.close()


def test_while_nobody_works_opening_does_not_go_back_behind_what_is_recorded(tmp_path: Path, time: Time) -> None:
    store = opened(tmp_path, time.machine())
    time.pass_by(100)
    store.commit([Author("run-1", store.now()).create()])
    recorded = store.now()
    store.close()
    time.wall -= 3600 * SECOND
    store = opened(tmp_path, time.machine())
    assert store.now() == recorded
    store.close()


def test_a_heartbeat_counts_as_recorded_even_when_its_worker_is_forgotten(tmp_path: Path, time: Time) -> None:
    store = opened(tmp_path, time.machine())
    store.register(worker("w1", store.now()))
    time.pass_by(100)
    store.heartbeat("w1", SECOND)
    recorded = store.now()
    time.pass_by(50)
    assert store.sweep() == ["w1"]
    assert store.stats().workers == ()
    store.close()
    time.wall -= 3600 * SECOND
    store = opened(tmp_path, time.machine("next boot"))
    assert store.now() == recorded
    store.close()


def test_a_new_boot_starts_at_the_wall_clock_but_not_before_what_is_recorded(tmp_path: Path, time: Time) -> None:
    store = opened(tmp_path, time.machine())
    store.register(worker("w1", store.now()))
    time.pass_by(100)
    store.commit([Author("run-1", store.now()).create()])
    store.close()
    time.ticks = 3 * SECOND
    time.wall += 60 * SECOND
    store = opened(tmp_path, time.machine("next boot"))
    assert store.now() == NOON + 160 * SECOND
    store.close()
    time.ticks = SECOND
    time.wall = NOON - 10**6 * SECOND
    store = opened(tmp_path, time.machine("third boot"))
    assert store.now() == NOON + 160 * SECOND
    store.close()


def test_without_a_boot_id_a_boot_shows_in_the_time_since_boot(tmp_path: Path, time: Time) -> None:
    store = opened(tmp_path, time.machine("node-1"))
    store.register(worker("w1", store.now()))
    store.heartbeat("w1", SECOND)
    store.close()
    time.ticks = SECOND
    time.wall += 60 * SECOND
    store = opened(tmp_path, time.machine("node-1"))
    assert store.now() == NOON + 60 * SECOND
    assert [one.state for one in store.stats().workers] == ["dead"]
    store.close()


def test_a_handle_follows_a_base_that_another_has_set(tmp_path: Path, time: Time) -> None:
    store = opened(tmp_path, time.machine())
    time.wall += 3600 * SECOND
    other = opened(tmp_path, time.machine())
    assert store.now() == NOON
    store.commit([])
    assert store.now() == other.now() == NOON + 3600 * SECOND
    store.close()
    other.close()


def test_a_handle_never_goes_back_when_the_base_does(time: Time) -> None:
    clock = Clock(time.machine())
    clock.start(NOON)
    before = clock.now()
    clock.adopt(NOON - 100 * SECOND)
    assert clock.now() >= before
    time.pass_by(50)
    assert clock.now() >= before
    time.pass_by(60)
    assert clock.now() == NOON - 100 * SECOND + time.ticks


def test_the_time_of_this_machine_does_not_go_back() -> None:
    machine = this_machine()
    assert machine == machine._replace(boot_id=this_machine().boot_id)
    ticks = [machine.ticks() for _ in range(1000)]
    assert ticks == sorted(ticks)
    assert machine.wall() > NOON
