"""An application in several versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process import Spawner
from tests.upgrade.deployment import Application


@pytest.fixture
def shop(tmp_path: Path, tmp_db: str, spawn: Spawner) -> Application:
    """Give an application on an empty database."""
    return Application(tmp_path, tmp_db, spawn)
