"""The data files of a release, read when they are asked for. Their folder was checked, and is private."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


class Files(Mapping[str, bytes]):
    """See the module.

    Args:
        tree: the folder that the release was unpacked into.
        manifest: paths of all of its files.
    """

    def __init__(self, tree: Path, manifest: Iterable[str]) -> None:
        self._tree = tree
        self._paths = frozenset(path for path in manifest if not path.endswith(".py"))

    def __getitem__(self, path: str) -> bytes:
        if path not in self._paths:
            raise KeyError(path)
        return (self._tree / path).read_bytes()

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)
