"""The context functions for sync workflows, exported as ``perdure.blocking``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.api import context
from perdure.api.context import info, now, patched, random, resource, uuid4
from perdure.errors import UsageError
from perdure.kernel.scope import body

if TYPE_CHECKING:
    from perdure.model.duration import Duration

__all__ = ["checkpoint", "info", "now", "patched", "publish", "random", "resource", "sleep", "uuid4"]


def _bridge(what: str) -> Any:
    bridge = body(f"blocking.{what}").bridge
    if bridge is None:
        message = f"perdure.blocking.{what}() would block an async workflow"
        raise UsageError(message, hint=f"write `await perdure.{what}(...)`")
    return bridge


def sleep(duration: Duration) -> None:
    """Sleep durably in a sync workflow.

    Raises:
        InvalidValue: negative, not finite or too long; it is a ValueError.
    """
    _bridge("sleep").call(lambda: context.sleep(duration))


def checkpoint(name: str, data: Any = None) -> None:
    """Record that the run has reached ``name``; see `perdure.checkpoint`."""
    _bridge("checkpoint")
    context.checkpoint(name, data)


def publish(name: str, value: Any) -> None:
    """Publish ``value`` under ``name``; see `perdure.publish`."""
    _bridge("publish")
    context.publish(name, value)
