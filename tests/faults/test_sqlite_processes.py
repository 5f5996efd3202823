"""Several processes on one file: every commit that was acknowledged is there, whoever was killed meanwhile."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from perdure.errors import StoreUnavailable
from perdure.model.event import EMPTY_TAIL, broken_link
from perdure.store.base import StoreOptions, open_store
from perdure.store.sqlite import SqliteStore
from perdure.testing.author import Author
from tests.house.tree import ROOT
from tests.process import Child, Spawner

PATHS = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}

WORK = """
import os, sys, time
from pathlib import Path
from perdure.model.event import tail_of
from perdure.model.write import COMMITTED
from perdure.store.base import StoreOptions, open_store
from perdure.store.sqlite import SqliteStore
from perdure.testing.author import Author
path, me, commits = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = SqliteStore(path, StoreOptions())
store.open()
os.write(1, b"ready\\n")
while not path.with_name("go").exists():
    time.sleep(0.0001)
shared = [Author(f"shared-{n}", store.now()) for n in range(3)]
own = 0
for n in range(commits):
    fresh = Author(f"{me}-{n}", store.now())
    # Another process extends the same logs: look where they are, and be refused when it was quicker.
    steps = []
    for author in shared:
        author.tail = tail_of(store.load(author.run_id, -1)[0])
        steps.append(author.step(f"{me} {n}".encode()))
    created, *answers = store.commit([fresh.create(), *steps])
    assert created == COMMITTED
    taken = ",".join(str(k) for k, answer in enumerate(answers) if answer == COMMITTED)
    os.write(1, f"ack {n} {taken}\\n".encode())
os.write(1, b"end\\n")
store.close()
"""


HOLD = """
import apsw, signal, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("begin immediate")
print("inside")
signal.pause()
"""


def prepared(path: Path) -> None:
    store = SqliteStore(path, StoreOptions())
    store.open()
    for n in range(3):
        author = Author(f"shared-{n}", store.now())
        store.commit([author.create(), author.claimed()])
    store.close()


def verify(path: Path, said: dict[str, str]) -> tuple[int, int]:
    """Check that all that was acknowledged is there, once; return how many were taken and how many refused."""
    store = SqliteStore(path, StoreOptions())
    store.open()
    logs = [store.load(f"shared-{n}") for n in range(3)]
    assert store.problems() == []
    taken = refused = 0
    for me, out in said.items():
        for line in out.splitlines():
            if not line.startswith("ack "):
                continue
            _, number, *places = line.split(" ")
            won = {int(place) for place in places[0].split(",") if place}
            assert store.get(f"{me}-{number}") is not None, f"{me}-{number} was acknowledged and is gone"
            for n, log in enumerate(logs):
                found = sum(event.payload == f"{me} {number}".encode() for event in log)
                assert found == (n in won), f"{me} {number} in log {n}"
            taken, refused = taken + len(won), refused + 3 - len(won)
    for n, log in enumerate(logs):
        assert broken_link(f"shared-{n}", EMPTY_TAIL, log) is None
    store.close()
    return taken, refused


@pytest.mark.serial
def test_processes_that_write_one_file_lose_nothing(tmp_path: Path, spawn: Spawner) -> None:
    path = tmp_path / "runs.db"
    prepared(path)
    children = {f"p{n}": spawn.python(WORK, str(path), f"p{n}", "300", env=PATHS) for n in range(2)}
    for child in children.values():
        child.expect("ready")
    path.with_name("go").touch()  # on a fast disk the first would have ended before the second is there
    for child in children.values():
        assert child.finish(30).code == 0, child.err
    taken, refused = verify(path, {me: child.out for me, child in children.items()})
    assert taken + refused == 2 * 300 * 3
    assert taken > 0
    assert refused > 0, "they never met"


@pytest.mark.serial
def test_processes_killed_at_any_moment_lose_nothing(tmp_path: Path, spawn: Spawner) -> None:
    path = tmp_path / "runs.db"
    prepared(path)
    path.with_name("go").touch()
    steady = spawn.python(WORK, str(path), "steady", "200", env=PATHS)
    steady.expect("ready")
    seed = random.randrange(2**32)
    luck = random.Random(seed)
    said: dict[str, Child] = {"steady": steady}
    for n in range(5):
        child = said[f"k{n}"] = spawn.python(WORK, str(path), f"k{n}", "100000", env=PATHS)
        child.expect(f"ack {luck.randrange(1, 25)} ")
        child.send(signal.SIGKILL)
        assert child.finish().code != 0
    steady.expect("end", within=30)
    assert steady.finish().code == 0, steady.err
    taken, _ = verify(path, {me: child.out for me, child in said.items()})
    assert taken > 50, f"seed {seed}"


@pytest.mark.serial
def test_a_writer_stopped_in_its_transaction_holds_others_up_and_is_survived(tmp_path: Path, spawn: Spawner) -> None:
    path = tmp_path / "runs.db"
    prepared(path)
    stopped = spawn.python(HOLD, str(path))
    stopped.expect("inside")
    stopped.send(signal.SIGSTOP)
    store = open_store(f"sqlite:///{path}", StoreOptions(busy_timeout_s=0.2))
    with pytest.raises(StoreUnavailable, match="held the database's lock"):
        store.open()
    stopped.send(signal.SIGKILL)
    stopped.finish()
    store.open()
    assert store.commit([Author("run-1", store.now()).create()])
    store.close()
