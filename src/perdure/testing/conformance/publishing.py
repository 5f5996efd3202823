"""What the parts about versions have in common: small projects, and what is done with them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from perdure.version import publication
from perdure.version.definition import Definition
from perdure.version.dependency import Dependencies, Lock
from perdure.version.manifest import ManifestFile, make_blob, tree_sha256
from perdure.version.route import Route, revise
from perdure.version.survey import Release

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.store.catalog.base import Catalog, Decide, Registered, Shelf
    from perdure.version.known import Known
    from perdure.version.publication import Differing

AT = 1_772_000_000_000_000  # 2026-02-25


def sha(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def dependencies(lock: str | None = "a==1\n") -> Dependencies:
    """Return what a project stands on."""
    found = None if lock is None else Lock("uv.lock", lock, sha(lock))
    return Dependencies("3.12", 1, {"a": "1"}, {"shop/fast.so": sha("fast")}, found)


def project(files: Mapping[str, str], *workflows: str, scheme: str = "def1") -> tuple[Release, list[Definition]]:
    """Return the release of a project, and one definition for each workflow, which reaches all of it."""
    manifest = {path: ManifestFile(sha(text), len(text.encode())) for path, text in sorted(files.items())}
    release = Release(tree_sha256(manifest), manifest, ("shop",), dependencies())
    parts = {path: sha(text.strip()) for path, text in sorted(files.items())}
    identity = sha(f"{scheme} {sorted(parts.items())}")
    return release, [
        Definition(name, scheme, identity, f"shop.flow:{name}", "shop.boot:init", parts, '{"a":1}', "record",
                   dependencies())
        for name in workflows or ("order",)
    ]  # fmt: skip


def shop(text: str = "v1", *workflows: str) -> tuple[Release, list[Definition]]:
    """Return a project of two files, one of which has this text."""
    return project({"shop/__init__.py": "", "shop/flow.py": text}, *workflows)


def deciding(semver: str | None, **options: Any) -> Decide:
    """Return a decision as `perdure.version.publication` makes it."""

    def decide(known: Known, definition: Definition, differing: Differing) -> publication.Decision:
        return publication.decide(known, definition.sha256, semver, differing=differing, **options)

    return decide


def store_files(catalog: Catalog, *texts: str) -> None:
    """Add contents."""
    catalog.add_blobs(make_blob(text.encode()) for text in ("", *texts))


def publish(
    catalog: Catalog, text: str, semver: str | None, *workflows: str, at: int = AT, **options: Any
) -> list[Registered]:
    """Register a project whose code is a text, after its files are stored."""
    store_files(catalog, text)
    release, definitions = shop(text, *workflows)
    return catalog.register(
        release, definitions, deciding(semver, **options), at=at, actor="ana", reason="deploy", commit="c0ffee"
    )


def set_status(catalog: Catalog, version_id: int, status: Any, at: int = AT, workflow: str = "order") -> bool:
    """Change a status."""
    return catalog.set_status(workflow, version_id, status, at=at, actor="ben", reason="double charge")


def set_route(
    catalog: Catalog, weights: Mapping[str, float], channel: str = "default", workflow: str = "order"
) -> Route:
    """Set a route."""

    def next_one(known: Known, before: Route | None) -> Route:
        return revise(known, weights, before=before, channel=channel, salt="salt")

    return catalog.set_route(workflow, channel, next_one, at=AT, actor="cid", reason="canary")


def clear_route(catalog: Catalog, channel: str = "default") -> Route:
    """Clear a route."""

    def cleared(_: Known, before: Route | None) -> Route:
        return (
            Route(channel, 1, (), "salt") if before is None else before._replace(revision=before.revision + 1, arms=())
        )

    return catalog.set_route("order", channel, cleared, at=AT, actor="cid", reason="over")


def newest(shelf: Shelf) -> str | None:
    """Return the default label."""
    label = shelf.known.newest()
    return None if label is None else label.text


def texts(catalog: Catalog, workflow: str = "order") -> list[str]:
    """Return the labels of a workflow in the order of publication."""
    labels = sorted(catalog.shelf(workflow).known.labels, key=lambda label: label.seq)
    return [label.text for label in labels]


def actions(catalog: Catalog, workflow: str = "order") -> list[str]:
    """Return what was done, oldest first."""
    return [change.action for change in reversed(catalog.log(workflow))]
