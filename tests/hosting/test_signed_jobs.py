"""What a host is told of a release is what was signed; what the database says beside that does not count."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.runtime.hosts.job import Job
from perdure.runtime.hosts.plan import Plan
from perdure.store.catalog.base import HostedRelease, StoredDefinition, StoredRelease
from perdure.testing.conformance.publishing import project, sha
from perdure.version.dependency import Lock
from perdure.version.ed25519 import SigningKey, read_signing_key
from perdure.version.known import KnownLabel
from perdure.version.signature import Content, sign
from tests.keys import make_keys


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return read_signing_key(make_keys(tmp_path).private)


def hosted(key: SigningKey, *signed: str) -> HostedRelease:
    """Return a release of two workflows, of which some are signed."""
    release, definitions = project({"shop/flow.py": "v1"}, "order", "refund")
    found = []
    for number, definition in enumerate(definitions, start=1):
        label = KnownLabel(number, "1.0.0", "1.0.0", number)
        signature = sign(key, Content(definition, release), label, "ana", 0)
        signatures = (signature,) if definition.workflow in signed else ()
        found.append(StoredDefinition(number, definition, (label,), "active", None, 1, 0, signatures))
    return HostedRelease(StoredRelease(1, release, None, 0), tuple(found), {}, {1: {"PATH": "/evil"}})


def job_of(key: SigningKey, release: HostedRelease, *version_ids: int, environments: object = object()) -> Job:
    """Return the job of a host for these versions; for all where none is named."""
    plan = Plan("sqlite:///x", {}, Path("/nowhere"), trusted=(key.key,), environments=environments)  # type: ignore[arg-type]
    carried = [one for one in release.definitions if not version_ids or one.id in version_ids]
    return plan.job(release, "1", carried, "w")


def test_only_signed_versions_are_entries_and_their_environment_is_nobodys(key: SigningKey) -> None:
    job = job_of(key, hosted(key, "order"))
    assert [entry.workflow for entry in job.entries] == ["order"]
    assert {number: cause.code for number, cause in job.refused.items()} == {2: "signature_invalid"}
    assert job.environment == {}
    assert job.bootstrap == "shop.boot:init"


def test_a_set_up_that_nobody_signed_is_not_called(key: SigningKey) -> None:
    assert job_of(key, hosted(key)).bootstrap == ""
    release = hosted(key, "order", "refund")
    one, two = release.definitions
    evil = two._replace(definition=two.definition._replace(bootstrap="shop.evil:init"))
    job = job_of(key, release._replace(definitions=(evil, one)))
    assert (job.bootstrap, list(job.refused)) == ("shop.boot:init", [2])


def test_pins_of_a_version_that_nobody_signed_are_not_installed(key: SigningKey) -> None:
    release = hosted(key, "order", "refund")
    one, two = release.definitions
    evil = two.definition.dependencies._replace(distributions={"evil": "1"}, lock=None)
    altered = two._replace(definition=two.definition._replace(deps="pin", dependencies=evil))
    job = job_of(key, release._replace(definitions=(one, altered)), 2)
    assert list(job.refused) == [2]
    assert job.distributions == {"a": "1"}


def test_a_lock_file_is_the_signed_one(key: SigningKey) -> None:
    release = hosted(key, "order")
    stored = release.stored
    dependencies = stored.release.dependencies
    assert job_of(key, release).lock == dependencies.lock
    evil = dependencies._replace(lock=Lock("uv.lock", "evil==1\n", sha("a==1\n")))
    altered = release._replace(stored=stored._replace(release=stored.release._replace(dependencies=evil)))
    job = job_of(key, altered)
    assert job.entries == []
    assert job.refused[1].detail == (
        "order@1.0.0 is not signed by a trusted key (its lock file is not the one that was signed). Nothing was run."
    )
    assert len(job_of(key, altered, environments=None).entries) == 1  # nothing is installed
