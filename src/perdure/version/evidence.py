"""Whether what is stored of a version is what was registered. Reads all of it; nothing is executed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from perdure.errors import SnapshotCorrupt
from perdure.version.definition import Definition, sha256_of
from perdure.version.manifest import Blob, Manifest
from perdure.version.scan import SCHEME, of_bytes, scan
from perdure.version.unpack import check_manifest, content


def contents(manifest: Manifest, blobs: Iterable[Blob], version: str) -> dict[str, bytes]:
    """Return the files of a manifest, each checked.

    Raises:
        SnapshotCorrupt: one is missing, or not what was stored.
    """
    there = {blob.sha256: blob for blob in blobs}
    return {path: content(path, file, there.get(file.sha256), version) for path, file in manifest.items()}


def faults(definition: Definition, tree: str, manifest: Manifest, blobs: Iterable[Blob], version: str) -> Iterator[str]:
    """Give what is wrong with a stored version, a line each.

    Args:
        definition: what is stored of it.
        tree: name of the tree it came with.
        manifest: that tree.
        blobs: the contents that are there.
        version: what it is called, such as ``order@1.3.0``.
    """
    if definition.scheme == SCHEME and sha256_of(definition) != definition.sha256:
        yield f"{version}: its content is not that of {definition.sha256[:8]}; the stored version was altered."
    try:
        check_manifest(tree, manifest, version)
    except SnapshotCorrupt as error:
        yield str(error)
        return
    there = {blob.sha256: blob for blob in blobs}
    good: dict[str, bytes] = {}
    for path, file in manifest.items():
        try:
            good[path] = content(path, file, there.get(file.sha256), version)
        except SnapshotCorrupt as error:
            yield str(error)
    yield from _unlike(definition.parts, manifest, good, version)


def _unlike(parts: Mapping[str, str], manifest: Manifest, good: Mapping[str, bytes], version: str) -> Iterator[str]:
    """Give the files that count and are not what they count as."""
    for path, counted in parts.items():
        if path not in manifest:
            yield f"{version}: {path} is not among its files; the stored version was altered."
        elif path in good and not _counts_as(good[path], counted, is_source=path.endswith(".py")):
            yield f"{version}: {path} is not what was registered ({counted[:8]}); the stored version was altered."


def _counts_as(data: bytes, counted: str, *, is_source: bool) -> bool:
    if not is_source:
        return hashlib.sha256(data).hexdigest() == counted
    found = scan(data)
    # What this interpreter cannot parse may have been parsed by the one that registered it, and the other way round.
    return not found.parsed or counted in (found.canonical, of_bytes(data))
