"""How an engine deals with versions of workflows: its options, and what it registers when it opens."""

from __future__ import annotations

import logging
import os
import secrets
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import msgspec

from perdure.api.acting import default_actor
from perdure.api.settings import COUNTS, DURATIONS
from perdure.api.version_signing import check_own
from perdure.errors import BlobsMissing, InvalidValue, NoSource, UsageError
from perdure.loading.watching import Watch, process_started
from perdure.loading.watching import registered as modules_of
from perdure.model.duration import microseconds
from perdure.runtime.carried import NOTHING, Carried, Version
from perdure.runtime.hosts.plan import Plan
from perdure.version import publication
from perdure.version.commit import source_commit
from perdure.version.definition import WorkflowSource
from perdure.version.ed25519 import TrustedKey, read_trusted_key
from perdure.version.known import Known
from perdure.version.locate import entry_of
from perdure.version.publication import OnUnbumped, Registration
from perdure.version.route import DEFAULT_CHANNEL, holding
from perdure.version.scan import no_scans
from perdure.version.survey import take_survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from perdure.kernel.definition import WorkflowDefinition
    from perdure.runtime.settings import Settings
    from perdure.store.base import Store
    from perdure.store.catalog.base import Registered
    from perdure.version.definition import Definition
    from perdure.version.publication import Decision, Differing
    from perdure.version.survey import Survey

    Registrars = Callable[[Mapping[str, WorkflowDefinition] | None, str | None, str], "Registrar"]
    """(workflows, or None for those of the engine; who; why) -> what registers them."""

logger: logging.Logger = logging.getLogger("perdure.version")
_TRIES: Final = 10
_QUIET: Final = frozenset({"same_content", "pre_release", "lower_than_default"})
"""Notices that tell of something that was meant to happen."""


class VersionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an engine that are about versions.

    Attributes:
        packages: names of the first-party packages; found from the workflows' modules by default.
        bootstrap: module and function that set the application up, such as ``shop.boot:init``; called in version hosts.
        on_unbumped: whether a change that keeps its number is labelled apart (``auto``) or refused (``refuse``).
        new_versions: whether new runs start on what is newest (``default``), or only once it is promoted (``hold``).
        registration: whether a worker makes its versions known (``worker``), or has to find them (``published-only``).
        environments: where a version's dependencies are: here (``current``), or in an environment that is built for it
            where they are not here (``uv``).
        max_hosts: how many version hosts a worker may have at once; 0: none, and runs of other versions are parked.
        host_idle_s: after how many seconds without work a version host ends.
        foreign_delay_s: how long runs of another version wait for a worker that was deployed with it.
        trusted_keys: public keys of those who may sign versions.
        require_signed: refuse versions that none of them signed: in version hosts, and where registration is
            ``published-only`` also the worker's own.
    """

    packages: tuple[str, ...] | None = None
    bootstrap: str = ""
    on_unbumped: OnUnbumped = "auto"
    new_versions: Literal["default", "hold"] = "default"
    registration: Registration = "worker"
    environments: Literal["current", "uv"] = "current"
    max_hosts: int = 4
    host_idle_s: float = 30.0
    foreign_delay_s: float = 2.0
    trusted_keys: tuple[TrustedKey, ...] = ()
    require_signed: bool = False


_CHOICES: Final = {
    "on_unbumped": get_args(OnUnbumped),
    "new_versions": ("default", "hold"),
    "registration": get_args(Registration),
    "environments": ("current", "uv"),
}
_LEASES: Final = {"lease": "lease_us", "grace": "grace_us"}
_SPANS: Final = {"host_idle": "host_idle_s", "foreign_delay": "foreign_delay_s"}
SALT_BYTES: Final = 8
NAMES: Final = tuple(sorted({name.removesuffix("_s") for name in VersionOptions.__struct_fields__}))


def take_options(options: dict[str, Any]) -> VersionOptions:
    """Return the options that are about versions, and take them out of all options.

    Raises:
        InvalidValue: one has a wrong value.
    """
    values: dict[str, Any] = {}
    for name in NAMES:
        if name not in options:
            continue
        value = options.pop(name)
        if name in _CHOICES and value not in _CHOICES[name]:
            message = f"{name} must be {' or '.join(map(repr, _CHOICES[name]))}, not {value!r}"
            raise InvalidValue(message)
        if name in _SPANS:
            value = microseconds(value, name) / 1_000_000
        elif name == "max_hosts" and (type(value) is not int or not 0 <= value <= 1000):
            message = f"max_hosts must be a whole number up to 1000, not {value!r}"
            raise InvalidValue(message)
        elif name == "packages" and value is not None:
            value = _names(value)
        elif name == "trusted_keys":
            value = _keys(value)
        elif name == "bootstrap" and not (isinstance(value, str) and (not value or value.count(":") == 1)):
            message = f"bootstrap must be a text such as 'shop.boot:init', not {value!r}"
            raise InvalidValue(message)
        values[_SPANS.get(name, name)] = value
    taken = VersionOptions(**values)
    if taken.require_signed and not taken.trusted_keys:
        message = "require_signed=True needs trusted_keys: without any, no version could be run"
        raise InvalidValue(message)
    return taken


def _keys(value: Any) -> tuple[TrustedKey, ...]:
    if isinstance(value, str | bytes | os.PathLike):
        message = f"trusted_keys must be a list of files of public keys, not {value!r}"
        raise InvalidValue(message)
    return tuple(map(read_trusted_key, value))


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(one, str) and one for one in value):
        message = f"packages must be a list of names of packages, not {value!r}"
        raise InvalidValue(message)
    return tuple(value)


def survey_of(workflows: Iterable[WorkflowDefinition], options: VersionOptions, store: Store | None) -> Survey | None:
    """Return the versions that these workflows are; None if none of them is bound to one.

    Raises:
        NoSource: the source of one cannot be read.
        SnapshotTooLarge: the first-party files are too large to be stored.
        InvalidValue: a pattern matches nothing, or a configuration cannot be frozen.
    """
    sources = []
    for definition in workflows:
        extent = definition.extent
        if extent.unversioned:
            continue
        try:
            entry = entry_of(definition.function, definition.name)
        except NoSource as error:
            error.hint = error.hint or "put it into a file, or declare it with @workflow(unversioned=True)"
            raise
        sources.append(
            WorkflowSource(
                definition.name, entry, extent.include, extent.resources, extent.config, extent.config_files,
                extent.deps,
            )
        )  # fmt: skip
    if not sources:
        return None
    scans = no_scans if store is None else store.catalog.scans
    return take_survey(sources, packages=options.packages, bootstrap=options.bootstrap, scans=scans)


def new_salt() -> str:
    """Return what makes the arms of a new route independent of those of others."""
    return secrets.token_hex(SALT_BYTES)


def hosted_settings(
    settings: Settings, durability: str, codecs: Any, only: str | None, routes: dict[str, str]
) -> dict[str, Any]:
    """Return the settings of the engines of version hosts: this engine's own."""
    queues = dict(zip(settings.queues, settings.weights, strict=True)) if settings.weights else list(settings.queues)
    spans = {name: getattr(settings, field) / 1_000_000 for name, field in (*DURATIONS.items(), *_LEASES.items())}
    counts = {name: getattr(settings, name) for name in (*COUNTS, "max_bytes")}
    given = {
        "queues": queues, "concurrency": settings.concurrency, "durability": durability, "codecs": codecs,
        "routes": routes,
    }  # fmt: skip
    return {**given, **spans, **counts, **({} if only is None else {"only": only})}


def plan_of(url: str, settings: dict[str, Any], options: VersionOptions, carried: Carried) -> Plan | None:
    """Return how version hosts are made; None in one."""
    if carried.is_host:
        return None
    cache = _cache()
    return Plan(
        url, settings, cache / "releases", frozenset(carried.roots), carried.folders, options.max_hosts,
        options.host_idle_s, options.foreign_delay_s, cache / "environments" if options.environments == "uv" else None,
        options.trusted_keys if options.require_signed else None,
    )  # fmt: skip


def _cache() -> Path:
    """Return the folder for what old versions need on disk: this user's, or one that only this user can read."""
    home = os.environ.get("HOME")
    given = os.environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    if given:
        base = Path(given)
        there = next((folder for folder in (base, *base.parents) if folder.exists()), base)
        if os.access(there, os.W_OK):
            return base / "perdure"
    return Path(tempfile.gettempdir()) / f"perdure-{os.getuid()}"


class Registrar:
    """Makes the versions of an engine's workflows known to its database. Reads files, so it belongs on a thread.

    Args:
        store: the database.
        workflows: the workflows, by name.
        options: how.
        actor: who registers; the system's user by default.
        reason: why.
    """

    def __init__(
        self, store: Store, workflows: Mapping[str, WorkflowDefinition], options: VersionOptions,
        actor: str | None = None, reason: str = "",
    ) -> None:  # fmt: skip
        self._store = store
        self._workflows = workflows
        self._options = options
        self._actor = actor or default_actor()
        self._reason = reason

    def register(self) -> Carried:
        """Register, and return what this process carries.

        Raises:
            NoSource, SnapshotTooLarge, InvalidValue: see `survey_of`.
            UnbumpedChange: a change kept its number, and that is refused.
            NotPublished: a version is not known, and this process may not make it known.
            SignatureInvalid: only signed code may run, and this is not.
            StoreError: the database cannot be used.
        """
        survey = self.survey()
        if survey is None:
            return NOTHING
        registered = self.publish(survey)
        if self._options.require_signed and self._options.registration == "published-only":
            check_own(self._store, registered, self._options.trusted_keys)
        versions = {
            one.definition.workflow: Version(one.version_id, one.label, one.definition.config) for one in registered
        }
        return Carried(
            versions, survey.resources(), roots=survey.release.roots, folders=survey.folders,
            watch=_watch(survey, registered[0]),
        )  # fmt: skip

    def survey(self) -> Survey | None:
        """Return the versions that the workflows are, and log what is odd about them; None if none is bound to one."""
        survey = survey_of(self._workflows.values(), self._options, self._store)
        warned: set[str] = set()
        for notice in survey.notices if survey is not None else ():
            # Of one kind the first is a warning; the rest is there for who looks.
            logger.log(logging.INFO if notice.code in warned else logging.WARNING, notice.text)
            warned.add(notice.code)
        return survey

    def semver(self, workflow: str) -> str | None:
        """Return the number that a workflow declares."""
        return self._workflows[workflow].semver

    def publish(self, survey: Survey) -> list[Registered]:
        """Make what a survey found known, and say in the log what that leads to."""
        if self._options.new_versions == "hold":
            self._hold(survey)
        registered = self._stored(survey)
        for one in registered:
            for notice in one.decision.notices:
                logger.log(logging.INFO if notice.code in _QUIET else logging.WARNING, notice.text)
        return registered

    def _stored(self, survey: Survey) -> list[Registered]:
        catalog = self._store.catalog
        semvers = {name: definition.semver for name, definition in self._workflows.items()}
        decide = partial(_decide, semvers=semvers, options=self._options)
        for _ in range(_TRIES):
            try:
                return catalog.register(
                    survey.release, survey.definitions, decide, at=self._store.now(), actor=self._actor,
                    reason=self._reason, commit=source_commit(survey.base),
                )  # fmt: skip
            except BlobsMissing:  # new here, or collected as nothing needed them
                wanted = {file.sha256 for file in survey.release.manifest.values()}
                catalog.add_blobs(survey.blobs(catalog.missing(sorted(wanted))))
        message = "the files of this version are removed from the database as fast as they are added"
        raise UsageError(message)

    def _hold(self, survey: Survey) -> None:
        """Keep new runs on what they start on now, before anything new is known."""
        catalog = self._store.catalog
        hold = partial(holding, salt=new_salt())
        for definition in survey.definitions:
            shelf = catalog.shelf(definition.workflow)
            newest = shelf.known.newest()
            if DEFAULT_CHANNEL not in shelf.routes and newest is not None:
                catalog.set_route(
                    definition.workflow, DEFAULT_CHANNEL, hold, at=self._store.now(), actor=self._actor,
                    reason="new versions are held until they are promoted",
                )  # fmt: skip


def _watch(survey: Survey, registered: Registered) -> Watch:
    """Return what compares the modules that are imported from now on; those that were before are compared here.

    Raises:
        SourceChangedOnDisk: what is loaded is not what is on disk.
    """
    canonical = {path: sha256 for definition in survey.definitions for path, sha256 in definition.parts.items()}
    release = survey.release
    name = f"{registered.definition.workflow}@{registered.label}"
    watch = Watch(release.roots, modules_of(release.manifest, canonical), name)
    watch.check_loaded(sys.modules, process_started())
    return watch


def registrars(store: Store, workflows: Mapping[str, WorkflowDefinition], options: VersionOptions) -> Registrars:
    """Return what makes the registrar of somebody who publishes, and so may, whatever a worker may."""
    options = msgspec.structs.replace(options, registration="worker")

    def make(given: Mapping[str, WorkflowDefinition] | None, actor: str | None, reason: str) -> Registrar:
        return Registrar(store, workflows if given is None else given, options, actor, reason)

    return make


def _decide(
    known: Known, definition: Definition, differing: Differing, *, semvers: dict[str, str | None],
    options: VersionOptions,
) -> Decision:  # fmt: skip
    return publication.decide(
        known, definition.sha256, semvers[definition.workflow], on_unbumped=options.on_unbumped,
        registration=options.registration, differing=differing,
    )  # fmt: skip
