"""The root of the tree, and what belongs to no branch of it."""

from __future__ import annotations

from typing import Any, ClassVar


class PerdureError(Exception):
    """Root of every error this library raises.

    Args:
        text: What happened, one sentence without a final full stop.
        run_id: The run it happened to; named in the message unless the text names it already.
        step: The step it happened to; likewise.
        hint: What to do next; the class may have a default.
    """

    code: ClassVar[str] = "error"
    default_hint: ClassVar[str] = ""

    run_id: str | None
    step: str | None
    hint: str

    def __init__(
        self,
        text: str = "",
        *,
        run_id: str | None = None,
        step: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(text)
        self.run_id = run_id
        self.step = step
        self.hint = self.default_hint if hint is None else hint

    @property
    def text(self) -> str:
        """What happened, without the run, the step and the hint."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        # getattr: an instance rebuilt from stored data may lack attributes added later.
        text = self.text or self.code.replace("_", " ")
        where = [
            f"{noun} {name!r}"
            for noun, name in (
                ("run", getattr(self, "run_id", None)),
                ("step", getattr(self, "step", None)),
            )
            if name and repr(name) not in text and f"{noun} {name}" not in text
        ]
        if where:
            text = f"{text} ({', '.join(where)})"
        hint = getattr(self, "hint", "")
        if not hint:
            return text
        # A text that is a whole sentence is followed by another one.
        return f"{text} {hint[0].upper()}{hint[1:]}" if text.endswith(".") else f"{text}; {hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with ``args``, which keyword-only signatures refuse.
        return _rebuild, (type(self), self.args), self.__dict__


def _rebuild(cls: type[PerdureError], args: tuple[Any, ...]) -> PerdureError:
    error = cls.__new__(cls, *args)
    error.args = args
    return error


class UsageError(PerdureError):
    """The caller asked for something that cannot be; nothing was stored."""

    code = "usage"


class InvalidValue(UsageError, ValueError):
    """A setting or argument has a value that cannot be used."""

    code = "invalid_value"


class LeaseLost(PerdureError):
    """Another worker owns the run now; nothing more of it may be done here."""

    code = "lease_lost"


class CodecError(PerdureError):
    """A value cannot be stored exactly, or stored bytes cannot be read here.

    Attributes:
        path: Where in the value, from ``$``, for example ``$.opts['lock']``.
        type_name: Module and name of the type at that place.
        reason: Why, where there is more to say than that the type is unknown.
    """

    code = "codec"

    def __init__(
        self,
        text: str = "",
        *,
        path: str = "$",
        type_name: str = "",
        reason: str = "",
        run_id: str | None = None,
        step: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(text, run_id=run_id, step=step, hint=hint)
        self.path = path
        self.type_name = type_name
        self.reason = reason


class Diverged(PerdureError):
    """Replay asked for another operation than the one in the log; no effect was started.

    Attributes:
        expected: The recorded operation, as text.
        found: The operation the code asked for, as text.
    """

    code = "diverged"
    default_hint = "run it on the code it began with, or upgrade it explicitly"

    def __init__(
        self,
        text: str = "",
        *,
        expected: str = "",
        found: str = "",
        run_id: str | None = None,
        step: str | None = None,
        hint: str | None = None,
    ) -> None:
        if not text:
            text = f"replay diverged: recorded {expected}, the code asked for {found}"
        super().__init__(text, run_id=run_id, step=step, hint=hint)
        self.expected = expected
        self.found = found
