"""What can be read about versions, as people see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from datetime import datetime

    from perdure.version.known import VersionStatus
    from perdure.version.level import Level
    from perdure.version.signature import SignatureState


class VersionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a workflow: one content, whatever it was published as.

    Attributes:
        workflow: name of the workflow.
        label: its greatest label.
        labels: all of its labels, greatest first.
        sha256: its identity, in hex.
        status: whether it takes new runs: by itself (``active``), only if named (``withdrawn``), or not at all.
        status_change: day, actor and reason of the last change of the status; None if there was none.
        published_by: who published its greatest label.
        published_at: when.
        is_newest: whether it is what new runs start on without a route.
        share: part of the new runs that name no channel and no version which start on it, from 0 to 1.
    """

    workflow: str
    label: str
    labels: tuple[str, ...]
    sha256: str
    status: VersionStatus
    status_change: str | None
    published_by: str
    published_at: datetime
    is_newest: bool
    share: float


class VersionDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A version with its content.

    Attributes:
        version: what a listing shows of it.
        entry: module and name of the function.
        bootstrap: module and name of the function that sets the application up; empty for none.
        files: path of each file that counts to what counts of it: the hash of its syntax tree, or of its bytes.
        config: the frozen configuration; None for none.
        deps: whether dependencies are recorded only (``record``), or part of it (``pin``).
        python: minor version of Python it was recorded with.
        distributions: name of each distribution it was recorded with, to its version.
        roots: the first-party packages and modules it came with.
        commit: the commit it was made from, if that is known.
        created_at: when it was first registered.
    """

    version: VersionInfo
    entry: str
    bootstrap: str
    files: Mapping[str, str]
    config: Any
    deps: str
    python: str
    distributions: Mapping[str, str]
    roots: tuple[str, ...]
    commit: str | None
    created_at: datetime


class LabelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A label of a workflow: one publication.

    Attributes:
        label: its text, such as ``1.3.0+5f2a9c1e``.
        semver: the semantic version it was published with.
        sha256: identity of the version.
        status: whether the version takes new runs.
        published_by: who published it.
        published_at: when.
        is_newest: whether it is what new runs start on without a route.
    """

    label: str
    semver: str
    sha256: str
    status: VersionStatus
    published_by: str
    published_at: datetime
    is_newest: bool


class VersionDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two versions of a workflow.

    Attributes:
        workflow: name of the workflow.
        before: label of the one.
        after: label of the other.
        changed: paths of files that count in both, and are not the same.
        added: paths of files that count in the second only.
        removed: paths of files that count in the first only.
        entry: entry point and set-up before and after, if they differ.
        config: configuration before and after, if it differs.
        dependencies: distribution to its version before and after, of those that differ; None where it was not there.
        text: unified diff of the files, if it was asked for.
    """

    workflow: str
    before: str
    after: str
    changed: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    entry: tuple[str, str] | None
    config: tuple[Any, Any] | None
    dependencies: Mapping[str, tuple[str | None, str | None]]
    text: str | None = None


class VersionChange(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a workflow's record of changes.

    Attributes:
        n: its place in the order of all changes.
        at: when.
        actor: who.
        action: what was done: ``published``, ``labelled``, ``withdrawn``, ``restored``, ``closed``, ``purged``,
            ``route_set``, ...
        label: the version it concerns, by its greatest label; None for a route.
        reason: why.
        detail: what else there is to say, by action.
    """

    n: int
    at: datetime
    actor: str
    action: str
    label: str | None
    reason: str
    detail: Mapping[str, Any]


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a workflow that was published.

    Attributes:
        workflow: name of the workflow.
        label: the label it goes by.
        sha256: identity of the version.
        action: ``version``: a new version; ``label``: one more label of a known version; ``seen``: nothing new.
        notices: what there is to say about it.
        key_id: id of the key it was signed with; None if it was not signed now.
    """

    workflow: str
    label: str
    sha256: str
    action: Literal["seen", "label", "version"]
    notices: tuple[str, ...] = ()
    key_id: str | None = None


class BumpCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What publishing a workflow would lead to, and by how much its number has to grow.

    Attributes:
        workflow: name of the workflow.
        sha256: identity of the code that is here.
        semver: the number it declares; None for none.
        against: label of the version it was compared with; None if there is none.
        changed: what differs from that: paths of files, and what else counts.
        level: the least part of the number that has to grow: ``patch`` where the steps are the same, ``minor`` where
            steps follow after those there were, ``major`` otherwise; None if nothing differs.
        proposed: the number to give it; None if nothing differs.
        problem: why it cannot be published as it is; None if it can.
    """

    workflow: str
    sha256: str
    semver: str | None
    against: str | None
    changed: tuple[str, ...]
    level: Level | None
    proposed: str | None
    problem: str | None


class VersionSignature(msgspec.Struct, frozen=True, kw_only=True):
    """A signature of a version under one of its labels.

    Attributes:
        label: the label.
        key_id: id of the key: the beginning of the SHA-256 of its public part.
        state: ``valid``: a key that is trusted here vouches for what is stored; ``invalid``: its signature is of
            something else; ``unknown_key``: the key is not trusted here, so there is no telling.
        signed_by: who signed, as the database has it.
        signed_at: when.
    """

    label: str
    key_id: str
    state: SignatureState
    signed_by: str
    signed_at: datetime


class VersionCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether what is stored of a version is what was registered.

    Attributes:
        workflow: name of the workflow.
        label: its greatest label.
        sha256: its identity.
        files: how many files were read.
        problems: what is wrong, a line each; empty if nothing is. That nobody signed it is wrong only if the engine was
            given keys to trust.
        signatures: who signed it.
    """

    workflow: str
    label: str
    sha256: str
    files: int
    problems: tuple[str, ...]
    signatures: tuple[VersionSignature, ...] = ()


class OperationVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The version that an event of a run was recorded under.

    Attributes:
        seq: place in the log.
        type: what happened.
        op: id of the operation.
        kind: kind of the operation.
        name: name of the operation.
        label: label of the version.
    """

    seq: int
    type: str
    op: str
    kind: str | None
    name: str | None
    label: str


class BindingInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a run, and why it is this one.

    Attributes:
        run_id: id of the run.
        workflow: name of its workflow.
        label: the label it was bound through; empty while it is bound to none.
        sha256: identity of the version; None if it is bound to none.
        status: whether the version takes new runs; None if the run is bound to none.
        bound_by: what decided: ``version`` (it was asked for), ``schedule``, ``route``, ``newest``, ``first_claim`` (no
            version was known when it was started), ``fork`` (it has that of the run it is a fork of), or ``upgrade``;
            None if it is bound to none.
        channel: name of the route, if a route decided.
        revision: revision of that route.
        arm: number of the route's arm, from 0.
        routing_key: what it was routed by, if that is not its id.
        operations: what the run has recorded, each with the version it was recorded under.
        copied_from: id of the run that it is a fork of, unless it was upgraded since.
    """

    run_id: str
    workflow: str
    label: str
    sha256: str | None
    status: VersionStatus | None
    bound_by: str | None
    channel: str | None = None
    revision: int | None = None
    arm: int | None = None
    routing_key: str | None = None
    operations: tuple[OperationVersion, ...] = ()
    copied_from: str | None = None


class RouteArm(msgspec.Struct, frozen=True, kw_only=True):
    """A version and its part of the new runs of a channel.

    Attributes:
        label: label of the version.
        weight: as it was set.
        share: part of the new runs, from 0 to 1.
    """

    label: str
    weight: float
    share: float


class RouteInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How new runs of a channel are divided among versions.

    Attributes:
        workflow: name of the workflow.
        channel: name of the route; ``default`` is that of starts which name none.
        revision: how often it was changed; 0 for a default that nobody has set: all new runs start on the newest.
        arms: the versions; the first grows without taking keys from itself.
    """

    workflow: str
    channel: str
    revision: int
    arms: tuple[RouteArm, ...]


class VersionsCollected(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection of versions removed, or would remove.

    Attributes:
        versions: hashes of the versions whose code was removed.
        blobs: how many contents of files were deleted.
        bytes: how many bytes these were, as they were stored.
        dry_run: nothing was done.
    """

    versions: tuple[str, ...]
    blobs: int
    bytes: int
    dry_run: bool = False


class VersionUse(msgspec.Struct, frozen=True, kw_only=True):
    """A version in a database: what runs on it, who carries it, and what keeps it.

    Attributes:
        workflow: name of the workflow.
        label: its greatest label.
        sha256: its identity.
        status: whether it takes new runs.
        runs: state to number of runs that are bound to it.
        oldest_at: when the oldest of its runs that have not ended was created; None if there is none.
        workers: names of the live workers that were deployed with it.
        kept_by: what needs it: runs, routes, being the newest; empty if nothing does.
        hosts: names of the live version hosts that carry it.
    """

    workflow: str
    label: str
    sha256: str
    status: VersionStatus
    runs: dict[str, int] = msgspec.field(default_factory=dict)
    oldest_at: datetime | None = None
    workers: tuple[str, ...] = ()
    kept_by: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
