"""`engine.versions` and `engine.routes`: what there is, what is done to it, and what is recorded of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import perdure
from perdure.api.versioning import VersionOptions, registrars
from tests.binding.shops import Shop, client, publish

Change = Callable[[perdure.Engine, str], Coroutine[Any, Any, Any]]


async def test_a_workflow_through_its_versions(url: str, shop: Shop) -> None:
    first = await publish(url, shop.deploy("v1", "1.0.0"))
    second = await publish(url, shop.deploy("v2", "1.1.0", pay="LIMIT = 1\n"))
    assert (first.label, first.action, second.label) == ("1.0.0", "version", "1.1.0")
    async with client(url) as engine:
        newest, oldest = await engine.versions.list("order")
        assert (newest.label, newest.is_newest, newest.share) == ("1.1.0", True, 1.0)
        assert (oldest.sha256, oldest.share, oldest.published_by) == (first.sha256, 0.0, "ana")
        assert await engine.versions.list() == (newest, oldest)
        assert [one.label for one in await engine.versions.labels("order")] == ["1.1.0", "1.0.0"]

        detail = await engine.versions.get("order", second.sha256[:8])
        assert detail.version == newest
        assert set(detail.files) == {"shop/__init__.py", "shop/flow.py"}
        assert (detail.entry, detail.roots, detail.config) == ("shop.flow:order", ("shop",), None)

        diff = await engine.versions.diff("order", "1.0.0", "1.1.0", sources=True)
        assert (diff.changed, diff.added, diff.removed, diff.entry) == (("shop/flow.py",), (), (), None)
        assert diff.text is not None
        assert '-    return "v1"\n+    return "v2"\n' in diff.text
        assert (await engine.versions.diff("order", "1.0.0", "1.1.0")).text is None

        source = await engine.versions.source("order", "1.1.0")
        assert source["shop/pay.py"] == b"LIMIT = 1\n"
        assert await engine.versions.source("order", "1.1.0", "shop/pay.py") == {"shop/pay.py": b"LIMIT = 1\n"}
        with pytest.raises(perdure.UnknownVersion, match=r"order@1\.0\.0 has no file shop/pay\.py"):
            await engine.versions.source("order", "1.0.0", "shop/pay.py")

        check = await engine.versions.verify("order", "1.0.0")
        assert (check.files, check.problems) == (2, ())


async def test_each_change_leaves_one_row_that_says_who_and_why(url: str, shop: Shop) -> None:
    await publish(url, shop.deploy("v1", "1.0.0"))
    await publish(url, shop.deploy("v2", "1.1.0"))
    changes: list[tuple[str, Change]] = [
        ("withdrawn", lambda engine, why: engine.versions.withdraw("order", "1.1.0", reason=why, actor="ben")),
        ("restored", lambda engine, why: engine.versions.restore("order", "1.1.0", reason=why, actor="ben")),
        ("closed", lambda engine, why: engine.versions.close("order", "1.0.0", reason=why, actor="ben")),
        ("restored", lambda engine, why: engine.versions.restore("order", "1.0.0", reason=why, actor="ben")),
        ("route_set", lambda engine, why: engine.routes.set("order", {"1.0.0": 1}, reason=why, actor="ben")),
        ("route_set", lambda engine, why: engine.routes.promote("order", reason=why, actor="ben")),
        (
            "route_set",
            lambda engine, why: engine.routes.set("order", {"1.0.0": 1}, channel="b", reason=why, actor="ben"),
        ),
        ("route_set", lambda engine, why: engine.routes.clear("order", channel="b", reason=why, actor="ben")),
        ("withdrawn", lambda engine, why: engine.versions.rollback("order", reason=why, actor="ben")),
    ]
    async with client(url) as engine:
        row = (await engine.versions.log("order"))[0]
        for number, (action, change) in enumerate(changes):
            before = await engine.versions.log("order")
            await change(engine, f"reason {number}")
            row, *rest = await engine.versions.log("order")
            assert tuple(rest) == before, action
            assert (row.action, row.actor, row.reason) == (action, "ben", f"reason {number}")
        assert len(await engine.versions.log("order", limit=2)) == 2
        assert await engine.versions.log("order", row.at) == (row,)


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize("reason", ["", "  "])
async def test_a_change_without_a_reason_is_refused(url: str, shop: Shop, reason: str) -> None:
    await publish(url, shop.deploy("v1", "1.0.0"))
    async with client(url) as engine:
        for change in (
            engine.versions.withdraw("order", "1.0.0", reason=reason),
            engine.versions.restore("order", "1.0.0", reason=reason),
            engine.versions.close("order", "1.0.0", reason=reason),
            engine.versions.rollback("order", reason=reason),
            engine.routes.set("order", {"1.0.0": 1}, reason=reason),
            engine.routes.promote("order", reason=reason),
            engine.routes.clear("order", reason=reason),
        ):
            with pytest.raises(perdure.InvalidValue, match="a reason must be given"):
                await change
        assert len(await engine.versions.log("order")) == 1


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_code_without_a_loop_has_the_same(url: str, shop: Shop) -> None:
    module = shop.deploy("v1", "1.0.0")
    with perdure.SyncEngine(url, [module], worker=False) as engine:
        (one,) = engine.versions.publish(reason="first")
        (info,) = engine.versions.list(module.order)
        assert (one.label, info.sha256) == ("1.0.0", one.sha256)
        assert engine.routes.set("order", {"1.0.0": 3}, reason="pinned").arms[0].share == 1.0
        run = engine.start("order", id="a")
        binding = engine.versions.of(run.id)
        assert (binding.label, binding.bound_by, binding.revision, binding.arm) == ("1.0.0", "route", 1, 0)
        assert [route.channel for route in engine.routes.show("order")] == ["default"]
        assert engine.routes.clear("order", reason="done").arms == ()
        for name in ("get", "diff", "log", "labels", "check", "withdraw", "restore", "close", "rollback", "source",
                     "verify", "collect"):  # fmt: skip
            assert callable(getattr(engine.versions, name))
        (check,) = engine.versions.check()
        assert (check.level, check.problem) == (None, None)


async def test_a_listing_takes_a_label_or_the_beginning_of_a_hash(url: str, shop: Shop) -> None:
    first = await publish(url, shop.deploy("v1", "1.0.0"))
    module = shop.deploy("v2", "1.1.0")
    await publish(url, module)
    async with client(url) as engine:
        await engine.start("order", id="a", version="1.0.0")
        await engine.start("order", id="b")

        async def ids(version: str) -> list[str]:
            return [info.id async for info in engine.list(version=version)]

        assert (await ids("1.0.0"), await ids("1.1.0")) == (["a"], ["b"])
        assert (await ids(first.sha256[:8]), await ids(first.sha256)) == (["a"], ["a"])
        assert await ids("0" * 8) == []
        info = await engine.get("a").info()
        assert (info.version, info.version_id > 0) == ("1.0.0", True)


async def test_a_rollback_withdraws_the_newest_and_takes_it_out_of_the_route(url: str, shop: Shop) -> None:
    for number in (1, 2, 3):
        await publish(url, shop.deploy(f"v{number}", f"1.{number}.0"))
    async with client(url) as engine:
        gone, now = await engine.versions.rollback("order", reason="it charges twice", actor="ana")
        assert (gone.label, gone.status, now.label, now.is_newest) == ("1.3.0", "withdrawn", "1.2.0", True)
        assert gone.status_change is not None
        assert gone.status_change.endswith('by ana ("it charges twice")')
        await engine.start("order", id="a")
        assert (await engine.versions.of("a")).label == "1.2.0"

        await engine.routes.set("order", {"1.2.0": 5, "1.1.0": 95}, reason="canary")
        gone, now = await engine.versions.rollback("order", reason="again")
        assert (gone.label, now.label, now.share) == ("1.2.0", "1.1.0", 1.0)
        with pytest.raises(perdure.UnknownVersion, match=r"order has no version before 1\.1\.0"):
            await engine.versions.rollback("order", reason="too much")


async def test_what_is_held_is_not_the_default_until_it_is_promoted(url: str, shop: Shop) -> None:
    await publish(url, shop.deploy("v1", "1.0.0"), new_versions="hold")
    await publish(url, shop.deploy("v2", "1.1.0"), new_versions="hold")
    async with client(url) as engine:
        await engine.start("order", id="a")
        assert (await engine.versions.of("a")).label == "1.0.0"
        assert (await engine.routes.promote("order", reason="it is good")).arms == ()
        await engine.start("order", id="b")
        assert (await engine.versions.of("b")).label == "1.1.0"
        beta = await engine.routes.promote("order", channel="beta", reason="for some")
        assert [arm.label for arm in beta.arms] == ["1.1.0"]


async def test_routes_divide_the_runs_as_they_say(url: str, shop: Shop) -> None:
    await publish(url, shop.deploy("v1", "1.0.0"))
    module = shop.deploy("v2", "2.0.0")
    await publish(url, module)
    runs, part = 2000, 0.1
    async with client(url) as engine:
        await engine.routes.set("order", {"2.0.0": 10, "1.0.0": 90}, reason="canary")
        await engine.start_many(perdure.Start("order", id=f"r{n}") for n in range(runs))
        await engine.start_many(perdure.Start("order", id=f"k{n}", routing_key="customer-7") for n in range(20))
        labels = {info.id: info.version async for info in engine.list()}
    counts = Counter(label for run_id, label in labels.items() if run_id.startswith("r"))
    assert abs(counts["2.0.0"] - runs * part) < 5 * (runs * part * (1 - part)) ** 0.5
    assert len({label for run_id, label in labels.items() if run_id.startswith("k")}) == 1


async def test_a_repeated_start_returns_the_run_it_was_whatever_the_routes_say_since(url: str, shop: Shop) -> None:
    await publish(url, shop.deploy("v1", "1.0.0"))
    await publish(url, shop.deploy("v2", "2.0.0"))
    async with client(url) as engine:
        await engine.routes.set("order", {"1.0.0": 1}, reason="one")
        first = await engine.start("order", id="a")
        await engine.routes.set("order", {"2.0.0": 1}, reason="two")
        again = await engine.start("order", id="a")
        assert (first.is_new, again.is_new) == (True, False)
        binding = await engine.versions.of("a")
        assert (binding.label, binding.revision) == ("1.0.0", 1)


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_what_was_started_before_a_deployment_runs_on_its_own_version(url: str, shop: Shop) -> None:
    old = shop.deploy("v1", "1.0.0")
    await publish(url, old)
    async with client(url) as engine:
        await engine.start("order", id="before")
    new = shop.deploy("v2", "1.1.0")
    async with perdure.Engine(url, [new], max_hosts=0) as engine:
        assert await engine.run("order", id="after") == "v2"
        assert await engine.get("before").status() in (
            "pending",
            "parked",
        )  # parked, once it is clear that nobody has it
        (others,) = await engine.other_runs()
        assert str(others) == (
            "1 open run is of 'order' bound to other versions than the 1.1.0 of this worker: 1.0.0 (1)"
        )
    restored = shop.deploy("v1", "1.0.0")
    async with perdure.Engine(url, [restored], max_hosts=0) as engine:
        if await engine.get("before").status() == "parked":
            await engine.retry("before")
        assert await engine.get("before").result(timeout="20s") == "v1"
        binding = await engine.versions.of("before")
        assert {one.label for one in binding.operations} == {"1.0.0"}
        assert (await engine.versions.list("order"))[0].is_newest  # an old worker that starts moves nothing
        assert [one.label for one in await engine.versions.list("order") if one.is_newest] == ["1.1.0"]


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_a_worker_that_may_not_publish_adds_nothing(url: str, shop: Shop) -> None:
    module = shop.deploy("v1", "1.0.0")
    async with client(url) as engine:
        before = await engine.versions.log("order")
    with pytest.raises(perdure.NotPublished):
        await perdure.Engine(url, [module], registration="published-only").open()
    async with client(url) as engine:
        assert (await engine.versions.list(), await engine.versions.log("order")) == ((), before)
        await engine.versions.publish([module], reason="by hand")
    async with perdure.Engine(url, [module], registration="published-only") as engine:
        assert await engine.run("order") == "v1"


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_withdrawn_content_stays_withdrawn_whatever_it_is_published_as(
    url: str, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    await publish(url, shop.deploy("v1", "1.0.0"))
    await publish(url, shop.deploy("v2", "1.1.0"))
    async with client(url) as engine:
        await engine.versions.withdraw("order", "1.1.0", reason="double charge", actor="ana")
        day = (await engine.versions.log("order", limit=1))[0].at.date().isoformat()
    assert (await publish(url, shop.deploy("v2", "1.1.0"))).action == "seen"
    assert (await publish(url, shop.deploy("v2", "1.5.0"))).action == "label"
    assert caplog.messages[-1] == (
        f'order 1.5.0 has the content of 1.1.0, withdrawn on {day} by ana ("double charge"). Labelled, not the '
        "default. To allow it: perdure versions restore order@1.5.0."
    )
    async with client(url) as engine:
        assert [one.label for one in await engine.versions.labels("order") if one.is_newest] == ["1.0.0"]
        await engine.versions.restore("order", "1.5.0", reason="it was not that")
        assert [one.label for one in await engine.versions.labels("order") if one.is_newest] == ["1.5.0"]


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_a_thousand_registrations_make_one_version_and_one_entry(url: str, shop: Shop) -> None:
    module = shop.deploy("v1", "1.0.0")
    async with client(url, module) as engine:
        given = {"order": module.order.definition}
        registrar = registrars(engine.connection.store, given, VersionOptions())(None, None, "")
        survey = registrar.survey()
        assert survey is not None
        for number in range(1000):
            (one,) = await engine.connection.read(registrar.publish, survey)
            assert one.decision.action == ("seen" if number else "version")
        assert len(await engine.versions.list()) == 1
        assert len(await engine.versions.log("order")) == 1


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_a_closed_version_takes_no_runs_and_its_code_is_removed_once_nothing_needs_it(
    url: str, shop: Shop
) -> None:
    await publish(url, shop.deploy("v1", "1.0.0"))
    await publish(url, shop.deploy("v2", "1.1.0"))
    async with client(url) as engine:
        await engine.start("order", id="a", version="1.0.0")
        await engine.versions.close("order", "1.0.0", reason="drained", actor="ana")
        with pytest.raises(perdure.VersionClosed, match=r'by ana \("drained"\); it takes no new runs'):
            await engine.start("order", version="1.0.0")
        held = await engine.versions.collect(keep=0, closed_for=0)
        assert held.versions == ()
        await engine.cancel("a")
        await engine.purge("a")
        tried = await engine.versions.collect(keep=0, closed_for=0, dry_run=True)
        done = await engine.versions.collect(keep=0, closed_for=0)
        assert (len(done.versions), tried.versions, tried.dry_run) == (1, done.versions, True)
        assert [one.status for one in await engine.versions.list("order")] == ["active", "purged"]
        for look in (engine.versions.source, engine.versions.verify):
            with pytest.raises(perdure.VersionPurged, match=r"order@1\.0\.0 was purged on .*; its code is gone"):
                await look("order", "1.0.0")


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
async def test_a_retried_run_goes_on_on_its_own_version(url: str, shop: Shop) -> None:
    failing = '    if not __import__("os").path.exists("repaired"):\n        raise ValueError("broken")'
    old = shop.deploy("v1", "1.0.0", failing)
    async with perdure.Engine(url, [old]) as engine:
        run = await engine.start("order", id="a")
        with pytest.raises(perdure.RunFailed):
            await run.result()
    await publish(url, shop.deploy("v2", "1.1.0"))
    async with client(url) as engine:
        await engine.retry("a")
        binding = await engine.versions.of("a")
        assert (binding.label, binding.bound_by) == ("1.0.0", "newest")
