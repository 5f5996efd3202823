"""The texts that people read when versions stand in the way, word for word."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import perdure
from perdure.api.versioning import take_options
from tests.binding.shops import Shop, client, publish

pytestmark = [pytest.mark.parametrize("kind", ["sqlite"], indirect=True)]


async def refused(url: str, shop: Shop, mark: str, semver: str | None, **options: object) -> str:
    """Return what is said where a version is not taken."""
    module = shop.deploy(mark, semver)
    engine = perdure.Engine(url, [module], **options)  # type: ignore[arg-type]
    with pytest.raises(perdure.VersionError) as caught:
        await engine.open()
    return str(caught.value)


async def test_an_unbumped_change(url: str, shop: Shop) -> None:
    await publish(url, shop.deploy("v1", "1.3.0"))
    told = await refused(url, shop, "v2", "1.3.0", on_unbumped="refuse")
    assert re.fullmatch(
        r"order 1\.3\.0 is already published with other content \(shop/flow\.py differs\)\. Bump the version, or set "
        r'on_unbumped="auto" to publish 1\.3\.0\+[0-9a-f]{8}\.',
        told,
    )


async def test_the_same_content_with_another_number(url: str, shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "perdure.version")
    await publish(url, shop.deploy("v1", "1.3.0"))
    one = await publish(url, shop.deploy("v1", "1.5.0"))
    text = "order 1.5.0 has the same content as 1.3.0; labelled, no new version."
    assert one.notices == (text,)
    assert text in caplog.messages


async def test_a_worker_that_is_older_than_the_default(url: str, shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    await publish(url, shop.deploy("v1", "1.3.0"))
    await publish(url, shop.deploy("v2", "1.4.0"))
    await publish(url, shop.deploy("v1", "1.3.0"))
    assert caplog.messages[-1] == (
        "new 'order' runs start on 1.4.0, this worker carries 1.3.0; to roll back run: perdure rollback order"
    )


async def test_what_is_not_published(url: str, shop: Shop) -> None:
    told = await refused(url, shop, "v1", "1.0.0", registration="published-only")
    assert re.fullmatch(
        r"this worker's order \([0-9a-f]{8}\) has not been published and registration is \"published-only\"\. "
        r"Run perdure versions publish\.",
        told,
    )


async def test_an_unknown_version(url: str, shop: Shop) -> None:
    await publish(url, shop.deploy("v1", "1.3.0"))
    other = await publish(url, shop.deploy("v2", "1.3.0"))
    await publish(url, shop.deploy("v3", "1.4.0"))
    async with client(url) as engine:
        with pytest.raises(perdure.UnknownVersion) as caught:
            await engine.start("order", version="1.5.0")
        assert str(caught.value) == (f"order has no version 1.5.0. Newest: 1.4.0. Known: 1.4.0, {other.label}, 1.3.0.")


async def test_a_closed_version(url: str, shop: Shop) -> None:
    await publish(url, shop.deploy("v1", "1.1.0"))
    async with client(url) as engine:
        await engine.versions.close("order", "1.1.0", reason="drained", actor="ana")
        day = (await engine.versions.log("order", limit=1))[0].at.date().isoformat()
        with pytest.raises(perdure.VersionClosed) as caught:
            await engine.start("order", version="1.1.0")
        assert str(caught.value) == f'order@1.1.0 was closed on {day} by ana ("drained"); it takes no new runs.'


async def test_a_workflow_without_source(url: str, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    module = shop.deploy("v1", "1.0.0")
    monkeypatch.setitem(sys.modules, "__main__", type(sys)("__main__"))
    module.order.definition.function.__module__ = "__main__"
    with pytest.raises(perdure.NoSource) as caught:
        await publish(url, module)
    assert "no source for module __main__ (notebook or frozen application); order cannot be bound to a version." in str(
        caught.value
    )


async def test_a_computed_import_and_a_tree_that_is_too_large(
    url: str, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    module = shop.deploy("v1", "1.0.0", "    __import__(str(amount))")
    await publish(url, module)
    (text,) = [message for message in caplog.messages if "computed name" in message]
    assert re.fullmatch(
        r"shop/flow\.py:\d+ imports a module by a computed name; order is now bound to the whole package\. "
        r"Narrow it with include=\[\.\.\.\]\.",
        text,
    )
    (shop.folder / "shop" / "model.bin").write_bytes(b"\0" * (17 * 2**20))
    with pytest.raises(perdure.SnapshotTooLarge) as caught:
        await publish(url, module)
    assert str(caught.value) == (
        "first-party files add up to 18 MiB (limit 16). Largest: shop/model.bin 17 MiB. Use resources=[...]."
    )


@pytest.mark.parametrize("name", ["on_unbumped", "new_versions", "registration", "max_hosts", "packages", "bootstrap"])
def test_an_option_with_a_wrong_value_is_named(kind: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(perdure.InvalidValue, match=name):
        take_options({name: "shop" if name != "bootstrap" else "no colon"})
