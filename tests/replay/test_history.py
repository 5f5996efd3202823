"""History files: what they hold, and that nothing is lost in them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import perdure
from perdure.codec.base import open_chain
from perdure.codec.signature import encode_call
from perdure.model.event import EMPTY_TAIL, Draft, Event, seal
from perdure.replay.history import History, parse, record
from perdure.testing import load_histories
from tests.kernel.replay import record as live
from tests.kernel.world import World
from tests.replay import targets
from tests.replay.recorded import flow, history_of

KEPT = [name for name in Event._fields if name not in {"chain", "commit_id"}]


def lossless(history: History) -> History:
    back = parse(history.dump(), "text")[0]
    assert [[getattr(event, name) for name in KEPT] for event in back.events] == [
        [getattr(event, name) for name in KEPT] for event in history.events
    ]
    assert (back.run_id, back.workflow, back.version, back.tags, back.codec) == (
        history.run_id, history.workflow, history.version, history.tags, history.codec
    )  # fmt: skip
    return back


def test_a_recorded_run_comes_back_from_its_file_as_it_was() -> None:
    text = lossless(history_of(live(targets.counts, args=(3,)))).dump()
    first, second, *_ = text.splitlines()
    assert msgspec.json.decode(first) == {
        "perdure_history": 1, "run_id": "run", "workflow": "counts", "version": "0.0.0", "tags": {}, "codec": "json"
    }  # fmt: skip
    assert '"input":{"length":3}' in second
    assert all("\n" not in line for line in text.splitlines())


@pytest.mark.parametrize("payload", [b"[1", b"\x00p\xff", b"[1,\n2]", b'"\xff"', b""])
def test_bytes_that_are_no_line_of_json_are_kept_too(payload: bytes) -> None:
    world = live(targets.counts, args=(1,))
    odd = [event._replace(payload=payload) if event.op else event for event in world.log]
    assert "payload64" in lossless(history_of(world, odd)).dump()


def test_tags_are_kept_and_compression_is_not() -> None:
    chain = open_chain(("json", "zstd"))
    given = encode_call(targets.counts.definition.signature, (3,), {}, chain)
    big = chain.encode("x" * 5_000)
    assert big[0] == 0
    draft = Draft("step_completed", 1, "0", "step", "add", payload=big)
    events = seal("run", EMPTY_TAIL, (Draft("run_started", 1, input=given), draft), 0, 1)
    history = record(World(flow(targets.counts.definition.function)).row()._replace(tags='{"a":"b"}'), events, chain)
    back = lossless(history)
    assert (back.tags, back.codec) == ('{"a":"b"}', "json")
    assert back.events[1].payload == b'"' + b"x" * 5_000 + b'"'


def test_a_file_may_hold_several_runs_and_a_folder_several_files(tmp_path: Path) -> None:
    one, two = (history_of(live(targets.counts, args=(n,), run_id=f"r{n}")) for n in (1, 2))
    (tmp_path / "deep").mkdir()
    (tmp_path / "both.jsonl").write_text(one.dump() + "\n" + two.dump())
    (tmp_path / "deep" / "z.jsonl").write_text(two.dump())
    (tmp_path / "other.txt").write_text("no history")
    assert [history.run_id for history in load_histories(tmp_path)] == ["r1", "r2", "r2"]
    assert [history.run_id for history in load_histories(tmp_path / "deep" / "z.jsonl")] == ["r2"]


@pytest.mark.parametrize(
    "text,told",
    [
        ("", "holds no recorded run"),
        ("{", "line 1"),
        ('{"seq":1,"type":"x"}', "the first line has no 'perdure_history'"),
        ('{"perdure_history":2}', "history files of form 1"),
        ('{"perdure_history":1}', "line 1: 'run_id'"),
    ],
)
def test_what_is_no_history_file_is_refused_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(text)
    with pytest.raises(perdure.UsageError, match=told) as caught:
        load_histories(file)
    assert "perdure history ID --export FILE" in str(caught.value)


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(perdure.UsageError, match="cannot be read"):
        load_histories(tmp_path / "gone.jsonl")
    with pytest.raises(perdure.UsageError, match="there is no history file in"):
        load_histories(tmp_path)
