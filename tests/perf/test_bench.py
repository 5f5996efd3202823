"""The measurements run, count what they measured, and report it. Never how fast: that is for a quiet machine."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perdure import Engine
from perdure.bench import child, measure
from perdure.bench.figure import Figure
from perdure.bench.floor import Floor
from perdure.bench.profile import layer
from perdure.bench.report import lines
from perdure.bench.session import Taken, bench
from perdure.bench.sites.sqlite import SqliteSite
from perdure.bench.surroundings import surroundings, warnings
from perdure.bench.workload import ALL, FIGURES, Load, result, some_steps
from perdure.errors import InvalidValue, UsageError
from tests.process import Spawner

PERDURE = "from perdure.cli.main import main; main()"
SMALL = Load(
    runs=20, steps=3, concurrency=10, rounds=2, chain=20, singles=5, starts=50, long=60, killed_at=40, queued=300,
    asleep=30, idle_s=0.1, floor_s=0.02,
)  # fmt: skip
HELD = {
    "steps per single-row commit", "processor time per step", "step in sequence, in commits",
    "start to result, in commits",
    "starts, client alone", "recovery, claim to end of run", "recovery, peak memory", "idle worker, processor",
    "idle worker, memory", "start among sleepers, to empty", "claim, longest to shortest", "8 workers to 1",
}  # fmt: skip


def test_every_figure_is_taken_and_nothing_is_left(tmp_path: Path) -> None:
    told: list[str] = []
    taken = list(bench(tmp_path, SMALL, list(ALL), told.append))
    assert told == [group for group, _ in taken] == ["machine", *ALL]
    figures = [figure for _, found in taken for figure in found]
    assert all(figure.value >= 0 for figure in figures)
    assert {figure.name for figure in figures if figure.floor is not None} == HELD
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("collector")
async def test_steps_are_profiled_by_layer(tmp_path: Path) -> None:
    load = Load(runs=200, steps=10, concurrency=100, rounds=2, floor_s=0.02, profile=True)
    before = signal.getsignal(signal.SIGPROF)
    try:
        found = await child.take("steps", tmp_path, load)
    finally:
        signal.signal(signal.SIGPROF, before)
    layers = [figure for figure in found if figure.name.startswith("layer ")]
    cost = next(figure.value for figure in found if figure.name == "processor time per step")
    assert {"layer perdure.kernel", "layer perdure.runtime"} <= {figure.name for figure in layers}
    assert sum(figure.value for figure in layers) == pytest.approx(cost)


def test_code_belongs_to_the_layer_it_stands_in() -> None:
    assert layer(measure.__file__) == "perdure.bench"
    assert layer("/usr/lib/python3.11/asyncio/events.py") == "asyncio"
    assert layer("<string>") == "other Python"


def test_work_that_was_not_done_is_never_reported() -> None:
    with pytest.raises(RuntimeError, match="1 steps recorded, 2 expected"):
        measure.check(1, 2, "steps")


def test_the_floor_is_one_durable_row_a_commit(tmp_path: Path) -> None:
    floor = Floor(SqliteSite(tmp_path).bare, 0.05)
    for _ in range(3):
        floor.sample()
    floor.sample_bulk()
    assert len(floor.rates) == len(floor.commit_s) == 3
    assert floor.commits_per_s > 0
    assert floor.commit_us > 0
    assert floor.bulk[0] > 0


def test_a_result_is_about_a_hundred_bytes() -> None:
    assert 90 <= len(json.dumps(result(7))) <= 130


@pytest.mark.parametrize(
    "value,better,verdict",
    [
        (7, "higher", "goal"),
        (5, "higher", "pass"),
        (4, "higher", "pass"),
        (3.9, "higher", "miss"),
        (3, "lower", "goal"),
    ],
)
def test_a_figure_is_held_to_floor_and_goal(value: float, better: str, verdict: str) -> None:
    figure = Figure(name="x", value=value, unit="x", floor=4, goal=6, better=better)  # type: ignore[arg-type]
    assert figure.verdict == verdict
    assert Figure(name="x", value=value, unit="x").verdict == ""


def test_a_missed_floor_is_shown() -> None:
    figure = Figure(name="steps", value=12345.0, unit="/s", samples=[12000.0, 13000.0], floor=20_000)
    title, line = lines(Taken("steps", [figure]))
    assert title == "steps"
    assert line.split() == ["steps", "12,345", "/s", "[12,000-13,000]", "MISSED:", "at", "least", "20,000"]


def test_a_busy_machine_and_a_disk_in_memory_are_said(tmp_path: Path) -> None:
    quiet = surroundings(tmp_path) | {"load": "0.1", "processors": "2", "disk": "ext4"}
    assert not warnings(quiet)
    assert "busy" in warnings(quiet | {"load": "3.0"})[0]
    assert "in memory" in warnings(quiet | {"disk": "tmpfs"})[0]


def test_an_unknown_figure_and_an_unusable_place_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="nothing is measured under the name 'speed'"):
        list(bench(tmp_path, SMALL, ["steps", "speed"], print))
    with pytest.raises(UsageError, match="cannot measure in"):
        list(bench(tmp_path / "none", SMALL, ["steps"], print))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options", [["--only", "speed"], ["--db", "sqlite://"], ["--db", "mysql://x/y"], ["--runs", "0"]]
)
def test_what_cannot_be_measured_is_refused_in_one_line(spawn: Spawner, tmp_path: Path, options: list[str]) -> None:
    ended = spawn(sys.executable, "-c", PERDURE, "bench", *options, folder=tmp_path).finish()
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("as_json", [True, False])
def test_the_command_prints_a_table_or_one_document(spawn: Spawner, tmp_path: Path, as_json: bool) -> None:
    options = ["--runs", "10", "--rounds", "1", "--only", "steps", *(["--json"] if as_json else [])]
    ended = spawn.python(PERDURE, "bench", "--db", f"sqlite:///{tmp_path}/x.db", *options).finish(50)
    assert ended.code == 0
    if as_json:
        document = json.loads(ended.out)
        assert set(document["figures"]) == {"machine", "steps"}
        assert document["load"]["runs"] == 10
        assert document["surroundings"]["sqlite"]
        assert ended.err == ""
    else:
        assert "steps per single-row commit" in ended.out
        assert ended.out.splitlines()[-1].startswith(("0 of 2", "1 of 2", "2 of 2"))
        assert "measuring: steps\n" in ended.err
    assert not list(tmp_path.iterdir())


def test_an_interrupted_measurement_leaves_nothing(spawn: Spawner, tmp_path: Path) -> None:
    child = spawn.python(PERDURE, "bench", "--db", f"sqlite:///{tmp_path}/x.db")
    while not list(tmp_path.glob("perdure-bench-*/floor.db")):
        assert child.process.poll() is None
    child.send(signal.SIGTERM)
    assert child.finish().code == 130
    assert not list(tmp_path.iterdir())


def test_what_is_taken_by_default_is_known() -> None:
    assert set(FIGURES) < set(ALL) == {*child.IN_ROUNDS, *child.LONG} - {"machine", "doomed", "lull"}


async def test_so_many_worker_processes_do_the_work_as_the_figure_says(tmp_path: Path) -> None:
    # Enough work that the second worker, who looks a few times a second, does not come too late for all of it.
    await child.take("workers", tmp_path, replace(SMALL, runs=4_000, rounds=1, concurrency=5))
    site = SqliteSite(tmp_path)
    for count, name in enumerate(("round-1", "round-2"), start=1):
        async with Engine(site.url(name), [some_steps], worker=False) as engine:
            owners = {
                event.worker
                async for run in engine.list(workflow="some_steps", limit=200)
                for event in await engine.get(run.id).history()
                if event.type == "run_claimed"
            }
        assert len(owners) == count
