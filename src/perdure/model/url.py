"""Database URLs as they may be shown."""

from __future__ import annotations


def shown_url(url: str) -> str:
    """Return ``url`` without user, password and options: what is left may stand in a message or a log.

    Cuts off too much rather than too little where the URL is malformed.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "***" if "@" in url else _cut(url)[0]
    rest, options = _cut(rest)
    if not rest.startswith("/") and "@" in rest:
        rest = "***@" + rest.rpartition("@")[2]
    return f"{scheme}{separator}{rest}{options}"


def _cut(rest: str) -> tuple[str, str]:
    for place, character in enumerate(rest):
        if character in "?#":
            return rest[:place], f"{character}***"
    return rest, ""
