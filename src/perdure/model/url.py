"""Database URLs as they may be shown."""

from __future__ import annotations


def shown_url(url: str) -> str:
    """Return ``url`` without user, password and options: what is left may stand in a message or a log.

    Cuts off too much rather than too little where the URL is malformed.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url.partition("?")[0] if "@" not in url else "***"
    rest, query, _ = rest.partition("?")
    if not rest.startswith("/") and "@" in rest:
        rest = "***@" + rest.rpartition("@")[2]
    return f"{scheme}{separator}{rest}{'?***' if query else ''}"
