"""Settings as users give them, checked as a whole before anything is opened."""

from __future__ import annotations

from typing import Any

from perdure.errors import InvalidValue, UsageError
from perdure.model.duration import Duration, microseconds
from perdure.runtime.settings import Settings

NAMED = {"url", "workflows", "worker", "queues", "concurrency", "lease", "grace", "durability", "routes"}
"""Parameters of the engine that are written out, so never among the options here."""
DURATIONS = {"poll": "poll_us", "hint": "hint_us", "evict_after": "evict_after_us", "ahead": "ahead_us"}
COUNTS = {"threads", "max_deaths", "ahead_results"}
_DAY_US = 86_400_000_000


def build_settings(
    *,
    queues: tuple[str, ...],
    weights: tuple[int, ...] = (),
    concurrency: int,
    lease: Duration,
    grace: Duration,
    **options: Any,
) -> Settings:
    """Return checked settings.

    Raises:
        UsageError: an unknown option, a value out of range, or two values that contradict each other; names both.
    """
    values: dict[str, Any] = {
        "queues": queues,
        "weights": weights,
        "concurrency": _count("concurrency", concurrency),
        "lease_us": _span("lease", lease, 300_000, _DAY_US),
        "grace_us": _span("grace", grace, 0, _DAY_US),
    }
    for name, value in options.items():
        if name in DURATIONS:
            values[DURATIONS[name]] = _span(name, value, 1_000, _DAY_US)
        elif name in COUNTS:
            values[name] = _count(name, value)
        elif name == "max_bytes":
            values[name] = None if value is None else _count(name, value)
        else:
            known = ", ".join(sorted({*NAMED, *DURATIONS, *COUNTS, "max_bytes", "name", "codecs"}))
            message = f"there is no setting {name!r}; there are {known}"
            raise UsageError(message)
    settings = Settings(**values)
    if settings.poll_us < settings.hint_us:
        settings = Settings(**{**values, "hint_us": settings.poll_us})
    if settings.poll_us >= settings.lease_us:
        message = f"poll ({settings.poll_us / 1e6:g} s) must be shorter than lease ({settings.lease_us / 1e6:g} s)"
        raise InvalidValue(message)
    return settings


def _count(name: str, value: object) -> int:
    if type(value) is not int or not 1 <= value <= 2**40:
        message = f"{name} must be a whole number of at least 1, not {value!r}"
        raise InvalidValue(message)
    return value


def _span(name: str, value: Duration, least_us: int, most_us: int) -> int:
    span = microseconds(value, name)
    if not least_us <= span <= most_us:
        message = f"{name} must be between {least_us / 1e6:g} and {most_us / 1e6:g} seconds, not {value!r}"
        raise InvalidValue(message)
    return span
