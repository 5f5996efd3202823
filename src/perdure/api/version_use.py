"""What versions are used for: runs, workers, and what keeps them. Blocks, so it belongs on a thread."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from perdure.api.reading import moment
from perdure.api.version_info import VersionUse
from perdure.model.status import LIVE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.store.base import Store
    from perdure.store.catalog.base import Shelf, VersionUsage


class OtherRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of a workflow that have not ended and are bound to another version than the one at hand.

    Attributes:
        workflow: name of the workflow.
        own: label of the version at hand.
        others: label of each other version to how many runs it has.
    """

    workflow: str
    own: str
    others: dict[str, int]

    def __str__(self) -> str:
        count = sum(self.others.values())
        runs = f"{count} open {'run is' if count == 1 else 'runs are'}"
        versions = ", ".join(f"{label} ({each})" for label, each in self.others.items())
        return f"{runs} of {self.workflow!r} bound to other versions than the {self.own} of this worker: {versions}"


class Carriers(NamedTuple):
    """Names of the live processes that carry a version.

    Attributes:
        workers: those that were deployed with it.
        hosts: version hosts.
    """

    workers: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def other_runs(store: Store, own: Mapping[str, int]) -> tuple[OtherRuns, ...]:
    """Return the open runs that are not of these versions.

    Args:
        store: the database.
        own: workflow to the version at hand.
    """
    counts: defaultdict[int, int] = defaultdict(int)
    for usage in store.catalog.usage(sorted(LIVE)):
        counts[usage.version_id] += usage.runs
    found = []
    for workflow, version_id in sorted(own.items()):
        known = store.catalog.shelf(workflow).known
        others: dict[str, int] = {}
        for version in known.versions.values():
            label = known.label_of(version)
            if version.id != version_id and label is not None and counts.get(version.id):
                others[label.text] = counts[version.id]
        mine = known.label_of(known.versions[version_id])
        if others:
            found.append(OtherRuns(workflow=workflow, own="" if mine is None else mine.text, others=others))
    return tuple(found)


def uses(store: Store, carriers: Mapping[int, Carriers]) -> tuple[VersionUse, ...]:
    """Return all versions that are not purged, with what they are used for. Counts the runs.

    Args:
        store: the database.
        carriers: version to who carries it.
    """
    usage: defaultdict[int, list[VersionUsage]] = defaultdict(list)
    for one in store.catalog.usage():
        usage[one.version_id].append(one)
    shelves = map(store.catalog.shelf, store.catalog.workflows())
    return tuple(use for shelf in shelves for use in _uses(shelf, usage, carriers))


def _uses(shelf: Shelf, usage: Mapping[int, list[VersionUsage]], carriers: Mapping[int, Carriers]) -> list[VersionUse]:
    known = shelf.known
    found = []
    for version_id in dict.fromkeys(label.version_id for label in known.labels):
        version = known.versions[version_id]
        label = known.label_of(version)
        if version.status == "purged" or label is None:
            continue
        used = usage.get(version_id, [])
        living = [one for one in used if one.status in LIVE]
        found.append(
            VersionUse(
                workflow=known.workflow, label=label.text, sha256=version.sha256, status=version.status,
                runs={one.status: one.runs for one in used},
                oldest_at=moment(min(one.oldest_at for one in living)) if living else None,
                kept_by=_kept_by(shelf, version_id, used), **carriers.get(version_id, Carriers())._asdict(),
            )
        )  # fmt: skip
    return found


def _kept_by(shelf: Shelf, version_id: int, used: list[VersionUsage]) -> tuple[str, ...]:
    living = sum(one.runs for one in used if one.status in LIVE)
    ended = sum(one.runs for one in used if one.status not in LIVE)
    newest = shelf.known.newest()
    channels = [
        channel for channel, route in sorted(shelf.routes.items())
        if any(arm.version_id == version_id for arm in route.arms)
    ]  # fmt: skip
    reasons = [
        f"{living} open {'run' if living == 1 else 'runs'}" if living else "",
        f"{ended} ended {'run' if ended == 1 else 'runs'}" if ended else "",
        *(f"the route of channel {channel}" for channel in channels),
        "being the newest" if newest is not None and newest.version_id == version_id else "",
    ]
    return tuple(filter(None, reasons))
