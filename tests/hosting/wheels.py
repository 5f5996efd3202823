"""Small wheels in a folder that stands for an index, and wheels of what the engine needs, from what is installed."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path

from perdure.store.base import backend_of

NEEDS = ("apsw", "click", "msgspec")
_DRIVERS = {
    "postgres": ("psycopg", "psycopg-binary", "typing_extensions"),
    "mysql": ("PyMySQL", "cryptography", "cffi", "pycparser"),
}


def make_wheel(folder: Path, name: str, version: str, text: str) -> Path:
    """Make a wheel with one module of the distribution's name."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": text.encode(),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    return _pack(folder / f"{name}-{version}-py3-none-any.whl", info, files)


def repack_needs(folder: Path, url: str) -> None:
    """Make wheels of all that the engine needs for a database."""
    for name in (*NEEDS, *_DRIVERS.get(backend_of(url), ())):
        repack(folder, name)


def repack(folder: Path, name: str) -> Path:
    """Make a wheel of an installed distribution."""
    found = distribution(name)
    assert found.files is not None
    kept = [file for file in found.files if ".." not in file.parts and "__pycache__" not in file.parts]
    files = {file.as_posix(): Path(str(file.locate())).read_bytes() for file in kept}
    (wheel,) = (path for path in files if path.endswith(".dist-info/WHEEL"))
    info = wheel.split("/")[0]
    drop = {f"{info}/{one}" for one in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")}
    tags = [line[5:].split("-") for line in files[wheel].decode().splitlines() if line.startswith("Tag: ")]
    tag = "-".join(".".join(dict.fromkeys(parts)) for parts in zip(*tags, strict=True))
    named = f"{info.removesuffix('.dist-info')}-{tag}.whl"
    return _pack(folder / named, info, {path: data for path, data in files.items() if path not in drop})


def install(folder: Path, wheel: Path) -> None:
    """Put what a wheel holds into a folder of installed distributions."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)


def _pack(wheel: Path, info: str, files: dict[str, bytes]) -> Path:
    wheel.parent.mkdir(parents=True, exist_ok=True)
    record = ""
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(data)}\n"
            archive.writestr(path, data)
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return wheel


def sha256(file: Path) -> str:
    """Return a wheel's hash as lock files have it."""
    return f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"


@contextmanager
def index(folder: Path) -> Iterator[str]:
    """Serve the wheels of a folder as a package index on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").rpartition("/")[2]
            if self.path.startswith("/simple/"):
                found = [file for file in folder.iterdir() if re.sub(r"[-_.]+", "-", file.name.split("-")[0]) == name]
                links = "".join(f'<a href="/files/{file.name}">{file.name}</a>' for file in found)
                self._answer(links.encode() if found else None, "text/html")
            else:
                self._answer((folder / name).read_bytes(), "application/octet-stream")

        def do_HEAD(self) -> None:
            self.do_GET()

        def _answer(self, data: bytes | None, kind: str) -> None:
            self.send_response(200 if data is not None else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            if self.command == "GET":
                with suppress(ConnectionError):  # it has seen enough
                    self.wfile.write(data or b"")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
