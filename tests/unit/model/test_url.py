"""A database URL is shown without anything secret, however malformed it is."""

from __future__ import annotations

import pytest

from perdure.model.url import shown_url


@pytest.mark.parametrize(
    "url, shown",
    [
        ("sqlite:///runs.db", "sqlite:///runs.db"),
        ("sqlite:////var/a@b/runs.db", "sqlite:////var/a@b/runs.db"),
        ("postgresql://me:secret@host/db?password=secret", "postgresql://***@host/db?***"),
        ("postgresql://me:se@cret@host/db#secret", "postgresql://***@host/db#***"),
        ("me:secret@host", "***"),
        ("runs.db?key=secret", "runs.db"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown
    assert "secret" not in shown_url(url)
