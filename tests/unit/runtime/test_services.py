"""Small parts of a worker: background services, ids, alarms."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from uuid import UUID

import pytest

from perdure.errors import StoreUnavailable
from perdure.runtime.alarm import Alarm
from perdure.runtime.ids import CommitIds, is_uuid, uuid7
from perdure.runtime.service import Service


class Faulty(Service):
    def __init__(self, *errors: Exception) -> None:
        super().__init__(asyncio.get_running_loop(), 0.001)
        self.errors = list(errors)
        self.good = asyncio.Event()

    async def tick(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.good.set()


async def test_a_service_goes_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    service = Faulty(StoreUnavailable("an outage is no news"), ZeroDivisionError("a bug"))
    service.start()
    await asyncio.wait_for(service.good.wait(), 5)
    await service.stop()
    await service.stop()
    assert "Faulty failed; it goes on" in caplog.text
    assert "a bug" in caplog.text
    assert "no news" not in caplog.text


async def test_a_service_may_be_stopped_before_it_was_started() -> None:
    await Faulty().stop()


def test_ids_of_runs_are_ordered_uuids() -> None:
    ids = [uuid7() for _ in range(100)]
    assert len(set(ids)) == 100
    assert all(UUID(text).version == 7 and UUID(text).variant == "specified in RFC 4122" for text in ids)
    assert [text[:13] for text in ids] == sorted(text[:13] for text in ids)


@pytest.mark.parametrize(
    "text", ["order-17", "", "6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "6ba7b8109dad11d180b400c04fd430c8"]
)
def test_what_is_no_uuid_in_its_usual_form_is_told_apart(text: str) -> None:
    assert not is_uuid(text)
    assert is_uuid(uuid7())


def test_commit_ids_of_two_processes_start_apart() -> None:
    first, second = CommitIds(), CommitIds()
    assert first.take() + 1 == first.take()
    assert abs(first.take() - second.take()) > 2
    assert 0 < first.take() < 2**63


async def test_an_alarm_rings_for_what_is_due_and_wanted_in_order() -> None:
    now, rung = [0], asyncio.Event()
    wanted: Any = {"a", "c"}
    alarm = Alarm(asyncio.get_running_loop(), lambda: now[0], lambda operation: operation in wanted, rung.set)
    items: Any = {"c": 3_000, "b": 1_000, "a": 2_000}
    for name, due in items.items():
        alarm.push(due, name)
    assert alarm.next_due == 2_000, "nobody wants b any more"
    now[0] = 2_500
    await asyncio.wait_for(rung.wait(), 5)
    due_now: Any = alarm.take_due(now[0])
    assert due_now == ["a"]
    assert alarm.next_due == 3_000
    wanted.clear()
    assert alarm.next_due is None
    alarm.cancel()
    alarm.cancel()
