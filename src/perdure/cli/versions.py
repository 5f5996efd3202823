"""How versions and routes are told of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.api.version_reading import short
from perdure.cli.output import cell, print_facts, print_line, print_table, when

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.api.version_info import BindingInfo, RouteInfo, VersionChange, VersionDetail, VersionDiff, VersionInfo

_SAID = frozenset({"label", "semver", "changed", "changed_count", "previous", "release"})


def percent(share: float) -> str:
    """Return a part of a whole."""
    return f"{share * 100:.4g}%" if share else ""


def print_versions(infos: Iterable[VersionInfo]) -> None:
    """Print a table of versions."""
    print_table(
        ("WORKFLOW", "LABEL", "HASH", "STATUS", "NEW RUNS", "PUBLISHED", "BY", "ALSO"),
        [
            (one.workflow, one.label, short(one.sha256), one.status, percent(one.share), one.published_at,
             one.published_by, " ".join(one.labels[1:]))
            for one in infos
        ],
    )  # fmt: skip


def print_detail(found: VersionDetail, channels: Iterable[str]) -> None:
    """Print what a version is."""
    one = found.version
    facts: list[tuple[str, Any]] = [
        ("version", f"{one.workflow}@{one.label}"), ("labels", " ".join(one.labels)), ("hash", one.sha256),
        ("status", f"{one.status} {one.status_change or ''}".strip()), ("new runs", percent(one.share)),
        ("routes", " ".join(channels)), ("published", f"{when(one.published_at)} by {one.published_by}"),
        ("commit", found.commit), ("entry", found.entry), ("bootstrap", found.bootstrap),
        ("files", str(len(found.files))), ("config", found.config), ("packages", " ".join(found.roots)),
        ("python", found.python), ("dependencies", "part of it" if found.deps == "pin" else "recorded"),
        ("distributions", " ".join(f"{name} {version}" for name, version in sorted(found.distributions.items()))),
    ]  # fmt: skip
    print_facts(facts)


def print_diff(found: VersionDiff) -> None:
    """Print what differs, then the files line by line."""
    print_line(f"{found.workflow}: {found.before} > {found.after}")
    marks = (("changed", found.changed), ("added", found.added), ("removed", found.removed))
    for mark, paths in marks:
        for path in paths:
            print_line(f"{mark}  {path}")
    for name, pair in (("entry", found.entry), ("config", found.config)):
        if pair is not None:
            print_line(f"{name}  {cell(pair[0])} > {cell(pair[1])}")
    for name, (before, after) in found.dependencies.items():
        print_line(f"dependency  {name}: {before or 'none'} > {after or 'none'}")
    for line in (found.text or "").splitlines():
        print_line(line)


def print_log(changes: Iterable[VersionChange]) -> None:
    """Print a record of changes."""
    print_table(
        ("N", "AT", "ACTOR", "ACTION", "LABEL", "REASON", "DETAIL"),
        [(one.n, one.at, one.actor, one.action, one.label, one.reason, _detail(one)) for one in changes],
    )


def _detail(change: VersionChange) -> str:
    detail = change.detail
    if change.action == "route_set":
        arms = " ".join(f"{label}={weight:g}" for _, label, weight in detail["arms"]) or "cleared"
        return f"{detail['channel']} r{detail['revision']}: {arms}"
    said = [f"{key}={cell(value)}" for key, value in detail.items() if key not in _SAID and value is not None]
    if change.action == "labelled":
        said.insert(0, f"also {detail['label']}")
    if detail.get("changed"):
        more = detail["changed_count"] - len(detail["changed"][:3])
        said.append(", ".join(detail["changed"][:3]) + (f" and {more} more" if more > 0 else ""))
    return " ".join(said)


def print_routes(routes: Iterable[RouteInfo]) -> None:
    """Print a table of routes, a line for each version in one."""
    print_table(
        ("CHANNEL", "REVISION", "VERSION", "WEIGHT", "NEW RUNS"),
        [(route.channel, route.revision, arm.label, f"{arm.weight:g}", percent(arm.share))
         for route in routes for arm in route.arms],
    )  # fmt: skip


def told(binding: BindingInfo) -> str:
    """Return which version a run has, and why, in one line."""
    if binding.sha256 is None:
        return "bound to no version"
    why = {
        "version": "it was asked for", "schedule": "its schedule names it", "newest": "it was the newest",
        "first_claim": "its first worker carried it", "upgrade": "it was upgraded",
        "caller": "the run that called its step has it",
        "fork": f"so had {binding.copied_from}, of which it is a fork",
        "route": f"route {binding.channel} revision {binding.revision}, arm {binding.arm}",
    }.get(binding.bound_by or "", binding.bound_by or "")  # fmt: skip
    key = "" if binding.routing_key is None else f" by key {binding.routing_key}"
    return f"{binding.workflow}@{binding.label} ({short(binding.sha256)}, {binding.status}): {why}{key}"
