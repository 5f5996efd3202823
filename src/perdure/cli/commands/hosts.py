"""``perdure hosts``."""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING

import click

from perdure.cli import options
from perdure.cli.output import print_json, print_line, print_table
from perdure.cli.session import read
from perdure.errors import UsageError

if TYPE_CHECKING:
    from perdure.api.health import HostInfo


@click.group("hosts")
def command() -> None:
    """Look at version hosts: processes of workers that run versions which nobody was deployed with."""


@command.command("list")
@options.database
@options.as_json
def list_(*, db: str, as_json: bool) -> None:
    """List the version hosts that are alive, on all machines. With --json one object per line."""
    found = read(db, lambda engine: engine.hosts.list())
    if as_json:
        for host in found:
            print_json(host)
        return
    print_table(
        ("HOST", "MACHINE", "PID", "WORKER", "SINCE", "CARRIES"),
        [(one.id, one.machine, one.pid, one.worker, one.started_at, ",".join(one.workflows)) for one in found],
    )


@command.command("stop")
@click.argument("ids", metavar="HOST...", nargs=-1, required=True)
@options.database
def stop(*, ids: tuple[str, ...], db: str) -> None:
    """Ask version hosts of this machine to hand their runs back and end.

    Where they are still needed, their worker starts new ones.
    """
    found: dict[str, HostInfo] = {host.id: host for host in read(db, lambda engine: engine.hosts.list())}
    for host_id in ids:
        host = found.get(host_id)
        if host is None:
            message = f"no live version host has the id {host_id!r}"
            raise UsageError(message, hint="perdure hosts list shows them")
        if host.machine != socket.gethostname():
            message = f"version host {host_id} is on {host.machine}, not here"
            raise UsageError(message, hint="run the command there")
    for host_id in ids:
        os.kill(found[host_id].pid, signal.SIGTERM)
        print_line(f"{host_id}: asked to end")
