"""What installed distributions bring: which of them provides a module, by the files each says it has.

Child processes load this file by its path (see `inside`), so it imports the standard library only.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Provided:
    """Answers whether one of some distributions provides a module. Their lists are read when first asked for.

    Args:
        distributions: names of distributions; one that is not installed provides nothing.
    """

    def __init__(self, distributions: Iterable[str]) -> None:
        self._distributions = tuple(distributions)
        self._known: frozenset[str] | None = None

    def __call__(self, module: str) -> bool:
        """Whether a module comes from one of the distributions."""
        if self._known is None:
            self._known = frozenset(name for one in self._distributions for name in _modules(one))
        return module in self._known


def _modules(name: str) -> Iterable[str]:
    """Give the modules of a distribution, and the packages they are in."""
    try:
        files = distribution(name).files or ()
    except PackageNotFoundError:
        return
    for file in files:
        path = PurePosixPath(file)
        parts = list(path.parts)
        # `name.cpython-311-x86_64-linux-gnu.so` and `name.py` alike; data only says that its folders are there.
        parts[-1] = parts[-1].partition(".")[0] if path.suffix in (".py", ".so", ".pyd") else ""
        if all(part.isidentifier() for part in parts[:-1]):
            names = [part for part in parts if part and part != "__init__"]
            yield from (".".join(names[:count]) for count in range(1, len(names) + 1))
