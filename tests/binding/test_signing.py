"""Signing versions: what is published, what is published already, and who signed what."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from perdure import Engine, InvalidValue, UsageError
from tests.binding.shops import Shop, client
from tests.keys import KeyFiles, make_keys


@pytest.fixture
def keys(tmp_path: Path) -> KeyFiles:
    return make_keys(tmp_path)


async def test_what_is_published_is_signed_once_and_verified(url: str, shop: Shop, keys: KeyFiles) -> None:
    module = shop.deploy("v1", "1.0.0")
    async with client(url, module) as engine:
        for action in ("version", "seen"):
            (one,) = await engine.versions.publish(sign=keys.private, actor="ci", reason="release")
            assert (one.action, one.key_id) == (action, keys.id)
        (one,) = await engine.versions.publish()
        assert one.key_id is None
        check = await engine.versions.verify("order", "1.0.0")
        assert check.problems == ()
        (signature,) = check.signatures
        assert (signature.label, signature.key_id, signature.state) == ("1.0.0", keys.id, "unknown_key")
        assert signature.signed_by == "ci"
        signed, published = await engine.versions.log("order")
        assert (signed.action, signed.actor, signed.reason) == ("signed", "ci", "release")
        assert signed.detail == {"label": "1.0.0", "key_id": keys.id}
        assert published.action == "published"
    async with client(url, trusted_keys=[keys.public]) as engine:
        check = await engine.versions.verify("order", "1.0.0")
        assert (check.problems, check.signatures[0].state) == ((), "valid")


async def test_a_verification_with_other_keys_fails(url: str, shop: Shop, keys: KeyFiles, tmp_path: Path) -> None:
    other = make_keys(tmp_path, "other")
    async with client(url, shop.deploy("v1", "1.0.0"), trusted_keys=[other.public]) as engine:
        await engine.versions.publish(reason="x")
        check = await engine.versions.verify("order", "1.0.0")
        assert check.problems == ("order@1.0.0 is not signed by a trusted key (it has no signature).",)
        made = await engine.versions.sign("order", "1.0.0", key=keys.private.read_text(), reason="looked", actor="ana")
        assert (made.label, made.key_id, made.signed_by) == ("1.0.0", keys.id, "ana")
        check = await engine.versions.verify("order", "1.0.0")
        assert check.problems == (f"order@1.0.0 is not signed by a trusted key (key id {keys.id}).",)
        await engine.versions.sign("order", "1.0.0", key=other.private)
        check = await engine.versions.verify("order", "1.0.0")
        assert check.problems == ()
        assert {(one.key_id, one.state) for one in check.signatures} == {
            (keys.id, "unknown_key"), (other.id, "valid"),
        }  # fmt: skip


async def test_an_unchanged_workflow_in_a_new_release_is_signed_if_its_files_were(
    url: str, shop: Shop, keys: KeyFiles, tmp_path: Path
) -> None:
    new = make_keys(tmp_path, "new")
    first = shop.deploy("v1", "1.0.0")
    async with client(url, first) as engine:
        await engine.versions.publish(sign=keys.private)
    again = shop.deploy("v1", "1.1.0", beside="X = 1\n")  # nothing reaches this file, but it is stored with a release
    async with client(url, again) as engine:
        with pytest.raises(UsageError, match=r"order@1\.1\.0 is stored with other files .* no trusted key signed it"):
            await engine.versions.publish(sign=new.private)
        (one,) = await engine.versions.publish(sign=keys.private)
        assert (one.label, one.action) == ("1.1.0", "seen")
        labels = [signature.label for signature in (await engine.versions.verify("order", "1.1.0")).signatures]
        assert labels == ["1.0.0", "1.1.0"]
    async with client(url, again, trusted_keys=[keys.public]) as engine:  # the new key takes over from the old one
        await engine.versions.publish(sign=new.private)
    async with client(url, trusted_keys=[new.public]) as engine:
        assert (await engine.versions.verify("order", "1.1.0")).problems == ()


async def test_what_was_altered_is_not_signed(tmp_path: Path, shop: Shop, keys: KeyFiles) -> None:

    file = tmp_path / "altered.db"
    module = shop.deploy("v1", "1.0.0")
    async with client(f"sqlite:///{file}", module) as engine:
        await engine.versions.publish()
    connection = apsw.Connection(str(file))
    connection.execute("drop trigger definition_version_no_update; update definition_version set entry = 'os:getcwd'")
    connection.close()
    async with client(f"sqlite:///{file}", module) as engine:
        with pytest.raises(UsageError, match="is stored with other files or dependencies than those here"):
            await engine.versions.publish(sign=keys.private)
        with pytest.raises(Exception, match=r"its content is not that of .*; the stored version was altered"):
            await engine.versions.sign("order", "1.0.0", key=keys.private)
        assert (await engine.versions.verify("order", "1.0.0")).signatures == ()


@pytest.mark.parametrize(
    "options,text",
    [
        ({"require_signed": True}, "require_signed=True needs trusted_keys"),
        ({"trusted_keys": "release.pub"}, "trusted_keys must be a list of files of public keys"),
        ({"trusted_keys": [b"rubbish"]}, "the key is no PEM file of an Ed25519 key"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidValue, match=text):
        Engine("sqlite://", **options)  # type: ignore[arg-type]
