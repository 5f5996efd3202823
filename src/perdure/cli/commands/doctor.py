"""``perdure doctor``."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import click

from perdure import __version__
from perdure.api.health import Health, Unserved, WorkerInfo, health
from perdure.api.version_reading import short
from perdure.cli import options
from perdure.cli.output import ago, counts, escape, print_json, print_line, print_table
from perdure.cli.session import read
from perdure.cli.telling import FAILED
from perdure.model.url import shown_url
from perdure.version.installed import version_of

if TYPE_CHECKING:
    from perdure.api.engine import Engine

PACKAGES = ("apsw", "msgspec", "click")


@click.command("doctor")
@options.database
@options.as_json
def command(*, db: str, as_json: bool) -> int:
    """Check a database, its workers, and work nobody takes.

    Shows the settings and the durability really given, file, schema and clock.
    Only reads, while others use the database; creates nothing. Exit code 1 if something is wrong.
    """

    async def work(engine: Engine) -> Health:
        return await health(engine.connection)

    found = read(db, work)
    problems = problems_of(found)
    # What is on the path only, and not installed, has no version.
    packages = {package: version_of(package) or "?" for package in PACKAGES}
    versions = {"python": platform.python_version(), "perdure": __version__, **packages}
    if as_json:
        print_json({"db": shown_url(db), "versions": versions, "health": found, "problems": problems})
    else:
        _print(shown_url(db), versions, found, problems)
    return FAILED if problems else 0


def problems_of(found: Health) -> list[str]:
    """Return what is wrong, a line each."""
    problems = [f"{fact.name} {fact.value}: {fact.problem}" for fact in found.facts if fact.problem]
    problems += [f"{_nobody(work)}: {work.due} due, the oldest for {ago(work.age_s)}" for work in found.unserved]
    parked = found.runs.get("parked", 0)
    if parked:
        problems.append(f"{parked} parked, waiting for a person: perdure list --status parked")
    dead = [worker.name for worker in found.workers if worker.state == "dead"]
    if dead:
        problems.append(f"dead workers whose runs nobody has taken over yet: {', '.join(dead)}")
    return problems


def _nobody(work: Unserved) -> str:
    if work.version is not None:
        return f"no live worker carries {work.workflow}@{work.version}, which runs on queue {work.queue!r} are bound to"
    return f"no live worker takes workflow {work.workflow!r} from queue {work.queue!r}"


def _print(url: str, versions: dict[str, str], found: Health, problems: list[str]) -> None:
    rows: list[tuple[Any, ...]] = [("database", url, "ok")]
    rows += [(fact.name, fact.value, "WRONG" if fact.problem else "ok") for fact in found.facts]
    rows += [("versions", " ".join(f"{name} {number}" for name, number in versions.items()), "ok")]
    rows += [("runs", counts(found.runs) or "none", "ok")]
    print_table(("CHECK", "VALUE", ""), rows)
    if found.workers:
        click.echo()
        print_table(
            ("WORKER", "HOST OF", "STATE", "MACHINE", "PID", "HEARD OF", "QUEUES", "WORKFLOWS"),
            [(one.name, _parent(one, found), one.state, one.host, one.pid, one.heartbeat_at, ",".join(one.queues),
              ",".join(one.workflows)) for one in found.workers],
        )  # fmt: skip
    _print_versions(found)
    if found.parked:
        click.echo()
        print_table(
            ("PARKED", "WORKFLOW", "SINCE", "REASON"),
            [(run.id, run.workflow, run.updated_at, run.detail) for run in found.parked],
        )
    click.echo()
    for problem in problems:
        click.echo(f"{click.style('WRONG', fg='red')}  {escape(problem)}")
    if not problems:
        click.echo(click.style("nothing is wrong", fg="green"))


def _parent(worker: WorkerInfo, found: Health) -> str:
    """Return the name of the worker that started a version host; its id where it is not known any more."""
    names = {one.id: one.name for one in found.workers}
    return "" if worker.parent is None else names.get(worker.parent, worker.parent)


def _print_versions(found: Health) -> None:
    shown = [one for one in found.versions if one.kept_by or one.workers or one.hosts]
    if shown:
        click.echo()
        print_table(
            ("VERSION", "HASH", "STATUS", "RUNS", "OLDEST OPEN", "CARRIED BY", "KEPT BY"),
            [(f"{one.workflow}@{one.label}", short(one.sha256), one.status, counts(one.runs), one.oldest_at,
              ",".join((*one.workers, *(f"{host} (host)" for host in one.hosts))), "; ".join(one.kept_by))
             for one in shown],
        )  # fmt: skip
    if len(found.versions) > len(shown):
        rest = len(found.versions) - len(shown)
        what = "1 version" if rest == 1 else f"{rest} versions"
        print_line(f"and {what} that nothing needs: perdure versions list")
