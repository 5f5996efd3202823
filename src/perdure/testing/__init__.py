"""The public test kit."""

from __future__ import annotations

from perdure.testing.histories import (
    History,
    Verdict,
    VerdictKind,
    assert_replays,
    load_histories,
    replay,
)

__all__ = ["History", "Verdict", "VerdictKind", "assert_replays", "load_histories", "replay"]
