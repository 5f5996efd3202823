"""A damaged file: a log is read as it was written, or not at all.

What the chain of a log cannot show is that its end is gone; SQLite's own check of the file shows that. Derived rows
(run, inbox, request) are not chained: `perdure verify` compares them with the log.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from perdure.errors import PerdureError
from perdure.model.claim import ClaimRequest
from perdure.model.event import Event
from perdure.model.filter import RunFilter
from perdure.store.base import Store, StoreOptions, open_store
from perdure.store.instrumented import Instrumented
from perdure.store.sqlite import SqliteStore
from perdure.testing.author import Author, claims_for, worker

RUNS = [f"run-{n}" for n in range(5)]


def opened(path: Path) -> Instrumented:
    store = open_store(f"sqlite:///{path}", StoreOptions(durability="process"))
    assert isinstance(store, Instrumented)
    store.open()
    return store


def problems(store: Instrumented) -> list[str]:
    assert isinstance(store.inner, SqliteStore)
    return store.inner.problems()


def sound_file(path: Path) -> dict[str, list[Event]]:
    store = opened(path)
    for n, run_id in enumerate(RUNS):
        author = Author(run_id, store.now() + n)
        store.commit([author.create(tags=(("team", "a"),)), author.claimed(), author.send()])
        store.commit([author.step(b"result-%d" % n * 20, events=4)])
    logs = {run_id: read(store, run_id) for run_id in RUNS}
    assert problems(store) == []
    store.close()
    return logs


def read(store: Store, run_id: str) -> list[Event]:
    """Read a log without what its chain leaves out on purpose."""
    return [event._replace(commit_id=0) for event in store.load(run_id)]


def look(path: Path, logs: dict[str, list[Event]]) -> str:
    """Read everything from a damaged file. Only errors of ours may come out."""
    try:
        store = opened(path)
    except PerdureError:
        return "refused"
    seen = set()
    for run_id in RUNS:
        for call in (lambda: store.get(run_id), lambda: store.inbox(run_id), lambda: store.list(RunFilter())):  # noqa: B023
            try:
                call()
            except PerdureError:
                seen.add("detected")
        try:
            found = read(store, run_id)
        except PerdureError:
            seen.add("detected")
            continue
        assert found == logs[run_id][: len(found)], "a wrong log was accepted"
        if found != logs[run_id]:
            assert problems(store), "the end of a log is gone and nothing shows it"
            seen.add("shortened")
    try:
        store.close()
    except PerdureError:
        seen.add("detected")
    return "detected" if "detected" in seen else "shortened" if "shortened" in seen else "unharmed"


def flip(path: Path, whole: bytes, place: int, bit: int) -> None:
    for extra in path.parent.glob(f"{path.name}-*"):
        extra.unlink()
    damaged = bytearray(whole)
    damaged[place] ^= 1 << bit
    path.write_bytes(damaged)


def flips(path: Path, places: int | None) -> str:
    seed = random.randrange(2**32)
    logs = sound_file(path)
    whole = path.read_bytes()
    luck = random.Random(seed)  # the seed is in the story a failure tells
    used = [place for place, byte in enumerate(whole) if byte]
    verdicts: list[str] = []
    for place in used if places is None else luck.sample(used, places):
        flip(path, whole, place, luck.randrange(8))
        verdicts.append(look(path, logs))
    counts = {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}
    story = f"seed {seed}: {len(verdicts)} flips: {counts}"
    assert min(counts["detected"], counts["refused"]) > len(verdicts) // 20, story
    return story


def test_a_flipped_bit_never_makes_a_wrong_log(tmp_path: Path) -> None:
    flips(tmp_path / "runs.db", 300)


@pytest.mark.nightly
def test_a_flipped_bit_in_any_byte_never_makes_a_wrong_log(tmp_path: Path) -> None:
    print(flips(tmp_path / "runs.db", None))


DAMAGES = {
    "no log": "delete from event_log where run_no = 2",
    "a text that is no text": "update event_log set type = cast(x'ff' as text) where run_no = 2",
    "a row that contradicts its log": "update event_log set seq = 2 where run_no = 2",
    "a damaged row": "update run set epoch = 7 where no = 2",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_run_keeps_no_other_from_being_claimed(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(tmp_path / "runs.db")
    now = store.now()
    for n, run_id in enumerate(RUNS):
        store.commit([Author(run_id, now).create(wake_at=now + n)])
    store.register(worker("w1", now))
    assert isinstance(store.inner, SqliteStore)
    connection = store.inner._opened().writer
    connection.execute("drop trigger event_log_no_update; drop trigger event_log_no_delete")
    connection.execute(damage)
    claimed: list[str] = []
    for _ in range(4):
        found = store.claim(ClaimRequest("w1", ("default",), ("0 order",), 2), claims_for("w1"))
        assert found is not None
        claimed += [one.row.id for one in found.taken]
    store.close()
    assert set(claimed) >= set(RUNS) - {"run-1"}
    if "run-1" not in claimed:
        assert [record.getMessage()[:11] for record in caplog.records] == ["run 'run-1'"]


@pytest.mark.parametrize("kind", ["cut", "zeroed", "swapped", "doubled"])
def test_damaged_pages_never_make_a_wrong_log(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "runs.db"
    logs = sound_file(path)
    whole = path.read_bytes()
    pages = [whole[start : start + 4096] for start in range(0, len(whole), 4096)]
    verdicts = []
    for place in range(len(pages)):
        damaged = list(pages)
        if kind == "cut":
            del damaged[place:]
        elif kind == "zeroed":
            damaged[place] = bytes(4096)
        elif kind == "swapped":
            damaged[place], damaged[place - 1] = damaged[place - 1], damaged[place]
        else:
            damaged[place] = damaged[(place + 1) % len(pages)]
        for extra in path.parent.glob(f"{path.name}-*"):
            extra.unlink()
        path.write_bytes(b"".join(damaged))
        if path.stat().st_size:
            verdicts.append(look(path, logs))
    in_use = sum(int.from_bytes(page[3:5], "big") > 0 for page in pages[1:])  # cells: tables may be empty
    assert verdicts.count("refused") + verdicts.count("detected") > in_use // 3
