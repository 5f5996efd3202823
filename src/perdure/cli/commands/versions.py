"""``perdure versions``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from perdure.api.engine import Engine
from perdure.api.version_reading import short
from perdure.cli import options, target
from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.session import act, read, running
from perdure.cli.telling import FAILED, say
from perdure.cli.versions import percent, print_detail, print_diff, print_log, print_versions, told
from perdure.errors import UnknownVersion, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from perdure.api.version_info import BumpCheck, RouteInfo, VersionDetail, VersionDiff, VersionInfo

Named = tuple[str, str]
MOST_NAMED = 5


@click.group("versions")
def command() -> None:
    """Look at versions of workflows, publish, withdraw, restore and close them.

    WORKFLOW@V names one: by a label, the beginning of its hash, or a range, such as 'order@>=1.2,<2'.
    """


@command.command("list")
@click.argument("workflow", metavar="[WORKFLOW]", required=False)
@options.database
@options.as_json
def list_(*, workflow: str | None, db: str, as_json: bool) -> None:
    """List the versions of a workflow, or of all. With --json one object per line."""
    found = read(db, lambda engine: engine.versions.list(workflow))
    if as_json:
        for info in found:
            print_json(info)
        return
    print_versions(found)


@command.command("show")
@click.argument("version", metavar="WORKFLOW@V", type=options.VERSION)
@options.database
@options.as_json
def show(*, version: Named, db: str, as_json: bool) -> None:
    """Show one version: its labels, what it was made from, whether it takes new runs."""

    async def work(engine: Engine) -> tuple[VersionDetail, list[str]]:
        found = await engine.versions.get(*version)
        return found, _channels(await engine.routes.show(version[0]), found.version)

    found, channels = read(db, work)
    if as_json:
        print_json(found)
        return
    print_detail(found, channels)


@command.command("log")
@click.argument("workflow", metavar="WORKFLOW")
@options.database
@click.option("--since", type=options.MOMENT, help="Not older; a time, or a span back from now.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
@options.as_json
def log(*, workflow: str, db: str, since: datetime | None, limit: int, as_json: bool) -> None:
    """Show who changed versions and routes of a workflow, when and why, newest first."""
    found = read(db, lambda engine: engine.versions.log(workflow, since, limit))
    if as_json:
        for change in found:
            print_json(change)
        return
    print_log(found)


@command.command("diff")
@click.argument("workflow", metavar="WORKFLOW")
@click.argument("before", metavar="[A]", required=False)
@click.argument("after", metavar="[B]", required=False)
@options.database
@click.option("--files", is_flag=True, help="Only name what differs, and print no lines of source.")
@options.as_json
def diff(*, workflow: str, before: str | None, after: str | None, db: str, files: bool, as_json: bool) -> None:
    """Show what differs between two versions: the last two by default, or A and the newest."""

    async def work(engine: Engine) -> VersionDiff:
        pair = await _pair(engine, workflow, before, after)
        return await engine.versions.diff(workflow, *pair, sources=not files)

    found = read(db, work)
    if as_json:
        print_json(found)
        return
    print_diff(found)


async def _pair(engine: Engine, workflow: str, before: str | None, after: str | None) -> tuple[str, str]:
    infos = await engine.versions.list(workflow)
    if not infos:
        raise UnknownVersion(f"{workflow} has no version. None is published.")
    after = after or infos[0].label
    if before is None:
        if len(infos) < 2:
            message = f"{workflow} has one version only, {infos[0].label}"
            raise UsageError(message)
        before = infos[1].label
    return before, after


@command.command("source")
@click.argument("version", metavar="WORKFLOW@V", type=options.VERSION)
@click.argument("file", metavar="[FILE]", required=False)
@options.database
@options.as_json
def source(*, version: Named, file: str | None, db: str, as_json: bool) -> None:
    """List the stored files of a version, or print one as it is stored."""
    found = read(db, lambda engine: engine.versions.source(*version, file))
    if as_json:
        print_json({path: data.decode("utf-8", "replace") for path, data in found.items()})
    elif file is None:
        print_table(("FILE", "BYTES"), [(path, len(data)) for path, data in found.items()])
    elif sys.stdout.isatty():
        for line in found[file].decode("utf-8", "replace").splitlines():
            print_line(line)
    else:
        sys.stdout.buffer.write(found[file])


@command.command("check")
@click.argument("what", metavar="TARGET...", nargs=-1, required=True)
@options.database
@click.option("--against", metavar="V", default="newest", show_default=True, help="Version to compare with.")
@options.sources
@options.as_json
def check(
    *, what: tuple[str, ...], db: str, against: str, as_json: bool, packages: tuple[str, ...], bootstrap: str
) -> int:
    """Check that changed code has a new number, and propose one. For CI: exit code 1 on a change without.

    TARGET is package.module:workflow, package.module or file.py[:workflow]. The proposal comes from the steps that the
    source calls: the same is a patch, more behind them is a minor, anything else a major version.
    """
    code = [target.load(text).given for text in what]
    engine = Engine(db, code, worker=False, read_only=True, packages=packages or None, bootstrap=bootstrap)
    found = running(engine, lambda engine: engine.versions.check(against=against))
    for one in found:
        if as_json:
            print_json(one)
        else:
            print_line(_checked(one))
    return FAILED if any(one.problem for one in found) else 0


def _checked(one: BumpCheck) -> str:
    number = one.semver or "no number"
    if one.against is None:
        return f"{one.workflow}: {number}; nothing is published yet"
    if one.level is None:
        return f"{one.workflow}: {number}; the same as {one.against}"
    proposal = f"a {one.level} change of {one.against}, so at least {one.proposed}"
    if one.problem is not None:
        return f"{one.problem} It is {proposal}."
    more = f" and {len(one.changed) - MOST_NAMED} more" if len(one.changed) > MOST_NAMED else ""
    return f"{one.workflow}: {number}; {proposal} ({', '.join(one.changed[:MOST_NAMED])}{more})"


@command.command("publish")
@click.argument("what", metavar="TARGET...", nargs=-1, required=True)
@options.database
@click.option("--hold", is_flag=True, help="New runs go on starting on what they start on now, until it is promoted.")
@click.option("--on-unbumped", type=click.Choice(["auto", "refuse"]), default="auto", show_default=True,
              help="A change that kept its number is labelled apart, or refused.")  # fmt: skip
@options.sources
@options.acting
@options.as_json
def publish(
    *, what: tuple[str, ...], db: str, hold: bool, on_unbumped: str, packages: tuple[str, ...], bootstrap: str,
    actor: str | None, reason: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Make the versions of workflows known, as the start of a worker does, without starting one."""
    code = [target.load(text).given for text in what]
    engine = Engine(
        db, code, worker=False, packages=packages or None, bootstrap=bootstrap, on_unbumped=on_unbumped,
        new_versions="hold" if hold else "default",
    )  # fmt: skip
    found = running(engine, lambda engine: engine.versions.publish(actor=actor, reason=reason or ""))
    words = {"version": "published", "label": "labelled", "seen": "known already"}
    for one in found:
        if as_json:
            print_json(one)
        else:
            print_line(f"{one.workflow}@{one.label} ({short(one.sha256)}): {words[one.action]}")
            for notice in one.notices:
                say(notice)


@command.command("withdraw")
@click.argument("version", metavar="WORKFLOW@V", type=options.VERSION)
@options.database
@options.acting_for_a_reason
def withdraw(*, version: Named, db: str, actor: str | None, reason: str) -> None:
    """Let new runs start on a version only where they, or a route, name it. Its runs go on."""

    async def work(engine: Engine) -> tuple[VersionInfo, list[str]]:
        info = await engine.versions.withdraw(*version, reason=reason, actor=actor)
        return info, _channels(await engine.routes.show(version[0]), info)

    info, channels = act(db, work)
    print_line(f"{info.workflow}@{info.label} ({short(info.sha256)}): withdrawn")
    if channels:
        part = f" ({percent(info.share)} of the new runs)" if info.share else ""
        say(
            f"warning: the route of channel {', '.join(channels)} still leads to it{part}; "
            f"see perdure routes show {info.workflow}"
        )


@command.command("restore")
@click.argument("version", metavar="WORKFLOW@V", type=options.VERSION)
@options.database
@options.acting_for_a_reason
def restore(*, version: Named, db: str, actor: str | None, reason: str) -> None:
    """Take a version that was withdrawn or closed back into use."""
    info = act(db, lambda engine: engine.versions.restore(*version, reason=reason, actor=actor))
    print_line(f"{info.workflow}@{info.label} ({short(info.sha256)}): active")


@command.command("close")
@click.argument("version", metavar="WORKFLOW@V", type=options.VERSION)
@options.database
@options.acting_for_a_reason
def close(*, version: Named, db: str, actor: str | None, reason: str) -> None:
    """End the use of a version: no new runs at all. Its runs go on; `perdure gc versions` removes its code later."""
    info = act(db, lambda engine: engine.versions.close(*version, reason=reason, actor=actor))
    print_line(f"{info.workflow}@{info.label} ({short(info.sha256)}): closed")


@command.command("verify")
@click.argument("version", metavar="WORKFLOW@V", type=options.VERSION)
@options.database
@options.as_json
def verify(*, version: Named, db: str, as_json: bool) -> int:
    """Read all that is stored of a version, and compare it with its hashes. Exit code 1 if anything differs."""
    found = read(db, lambda engine: engine.versions.verify(*version))
    if as_json:
        print_json(found)
    else:
        for problem in found.problems:
            print_line(problem)
        state = f"{len(found.problems)} problems" if found.problems else "as it was registered"
        print_line(f"{found.workflow}@{found.label} ({short(found.sha256)}), {found.files} files: {state}")
    return FAILED if found.problems else 0


@command.command("of")
@click.argument("run_id", metavar="ID")
@options.database
@options.as_json
def of(*, run_id: str, db: str, as_json: bool) -> None:
    """Show which version a run is bound to, why, and what each of its operations was recorded under."""
    found = read(db, lambda engine: engine.versions.of(run_id))
    if as_json:
        print_json(found)
        return
    print_line(told(found))
    if found.operations:
        print_table(
            ("SEQ", "EVENT", "OPERATION", "NAME", "VERSION"),
            [(one.seq, one.type, one.op, one.name, one.label) for one in found.operations],
        )


def _channels(routes: Sequence[RouteInfo], info: VersionInfo) -> list[str]:
    """Return the channels whose route leads to a version."""
    labels = set(info.labels)
    return [route.channel for route in routes if any(arm.label in labels for arm in route.arms)]


@command.command("host-env")
@click.argument("version", metavar="WORKFLOW@V", type=options.VERSION)
@options.database
@click.option(
    "--set", "given", metavar="K=V", multiple=True, type=options.PAIR, help="Set a variable; may be repeated."
)
@click.option("--unset", "taken", metavar="K", multiple=True, help="Take a variable away; may be repeated.")
@click.option("--reason", default="", help="Why; kept in the record of changes. Needed to change something.")
@click.option("--actor", help="Who acts; kept in the record. The system user by default.")
def host_env(
    *, version: Named, db: str, given: tuple[tuple[str, str], ...], taken: tuple[str, ...], reason: str,
    actor: str | None,
) -> None:  # fmt: skip
    """Show or set the environment of the version hosts of a version, for what its code reads and nobody sets any more.

    The variables are kept in the database as they are given: no place for secrets. Runs that are parked because the
    code could not be loaded go on by themselves once it can.
    """
    variables: dict[str, str | None] = {**dict(given), **dict.fromkeys(taken)}
    if variables:
        held = act(db, lambda engine: engine.hosts.set_environment(*version, variables, reason=reason, actor=actor))
    else:
        held = read(db, lambda engine: engine.hosts.environment(*version))
    for name, value in held.items():
        print_line(f"{name}={value}")
