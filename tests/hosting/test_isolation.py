"""Old code sees its own modules and nothing newer, wherever the newer code lies."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.hosting.deployments import WAYS, deploy
from tests.hosting.releases import answer, flow, hosted, make_database, make_job, told

STEP = """
import importlib.resources, logging, logging.config, os, pickle, pkgutil, subprocess, sys, traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
import pydantic
import shop.version
from shop.work import work
from shop import late_in_step

found = {}
found["import string"] = pydantic.TypeAdapter(pydantic.ImportString).validate_python("shop.version.NAME")
found["sys.modules"] = sys.modules["shop.version"].NAME
logging.config.dictConfig({
    "version": 1, "disable_existing_loggers": False, "handlers": {"h": {"class": "shop.handlers.Handler"}},
    "loggers": {"shop": {"handlers": ["h"]}},
})
found["logging"] = logging.getLogger("shop").handlers[0].version
found["pickle"] = pickle.loads(b"cshop.models\\nThing\\n.").version
found["get_data"] = pkgutil.get_data("shop", "data.txt").decode()
found["resources"] = importlib.resources.files("shop").joinpath("data.txt").read_text()
found["__file__"] = (Path(__file__).parent / "data.txt").read_text()
with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
    found["pool"] = pool.submit(work).result()
with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
    found["forked pool"] = pool.submit(work).result()
program = [sys.executable, "-c", "from shop.work import work; print(work())"]
found["program"] = subprocess.run(program, check=True, capture_output=True, text=True).stdout.strip()
found["here"] = work()
found["late"] = late_in_step.NAME
from ns import member
found["namespace"] = member.NAME
found["namespace data"] = importlib.resources.files("ns").joinpath("member.py").name
return found
"""
WORK = """
def refused(name):
    try:
        __import__(name)
    except ImportError as error:
        return isinstance(error, ModuleNotFoundError) and error.name == name
    return False

def work():
    from shop.version import NAME
    import ns.member
    leaked = [name for name in ("added", "shop.added", "ns.extra") if not refused(name)]
    return NAME if ns.member.NAME == NAME and not leaked else f"{NAME}, leaked: {leaked}"
"""


def project(name: str) -> dict[str, str | bytes]:
    """Return a project all of whose modules and data say which version they are of."""
    said = f"NAME = {name!r}\n"
    return {
        **flow(STEP.strip() if name == "v1" else "return 'v2'"), "shop/version.py": said, "shop/data.txt": name,
        "shop/models.py": f"class Thing:\n    version = {name!r}\n", "shop/late_in_step.py": said,
        "shop/handlers.py": f"import logging\nclass Handler(logging.Handler):\n    version = {name!r}\n",
        "shop/work.py": WORK, "ns/member.py": said,
    }  # fmt: skip


V2 = project("v2") | {"added.py": "NAME = 'v2'\n", "shop/added.py": "NAME = 'v2'\n", "ns/extra.py": "NAME = 'v2'\n"}
ELSEWHERE = {"shop": "1.4.0", "ns": "1.4.0", "added": "1.4.0", "shop.added": "1.4.0"}


@pytest.mark.parametrize("way", WAYS)
async def test_whatever_is_deployed_old_code_finds_itself(tmp_path: Path, tmp_db: str, way: str) -> None:
    interpreter = deploy(tmp_path, way, V2)
    seen = "import shop.version, added, ns.extra; print(shop.version.NAME)"
    there = subprocess.run(
        [interpreter.python, "-c", seen], env=interpreter.environ, capture_output=True, text=True, check=True
    )
    assert there.stdout == "v2\n"  # else the test would test nothing
    job = make_job(tmp_path, project("v1"), await make_database(tmp_db), elsewhere=ELSEWHERE)
    async with hosted(job, interpreter.spawner) as host:
        await told(host)
        found: dict[str, Any] = await answer(tmp_db)
    wrong = {how: name for how, name in found.items() if name not in ("v1", "member.py")}
    assert not wrong
    assert len(found) == 14
