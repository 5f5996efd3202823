"""Write the reference pages on the Python API and on errors: ``docs/reference/python.md`` and ``errors.md``.

Run it after a change of a public name, signature or docstring: ``make reference``. A test fails while a page is not
current.
"""

from __future__ import annotations

import inspect
import re
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import perdure
from perdure import errors, guard, testing
from perdure.api import blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
NOTE = "<!-- Written by scripts/python_reference.py from the code. Change the code, then run `make reference`. -->"

GROUPS: dict[str, tuple[str, ...]] = {
    "Defining": ("step", "workflow", "Retry", "Duration", "AsyncStep", "SyncStep", "Workflow"),
    "Engine and runs": (
        "Engine",
        "Run",
        "SyncEngine",
        "SyncRun",
        "EngineStats",
        "CacheStats",
        "RunInfo",
        "Event",
        "Status",
        "EventType",
        "Verdict",
        "VerdictKind",
    ),
    "Queues": ("Queue", "Rate", "Start", "QueueHandle", "QueueInfo", "QueueChange", "QueueSettings", "SyncQueueHandle"),
    "Versions": (
        "Versions",
        "VersionRoutes",
        "VersionInfo",
        "VersionDetail",
        "LabelInfo",
        "VersionDiff",
        "VersionChange",
        "Published",
        "BumpCheck",
        "VersionCheck",
        "VersionSignature",
        "BindingInfo",
        "OperationVersion",
        "RouteInfo",
        "RouteArm",
        "VersionsCollected",
        "SyncVersions",
        "SyncVersionRoutes",
    ),
    "Upgrades": ("Upgrades", "UpgradePlan", "PlannedRun", "UpgradeResult", "SyncUpgrades"),
    "Inside a workflow": (
        "sleep",
        "now",
        "random",
        "uuid4",
        "info",
        "BodyInfo",
        "checkpoint",
        "publish",
        "patched",
        "resource",
        "blocking",
        "resource",
    ),
    "Inside a step": ("step_info", "StepInfo"),
    "In the application's database": ("Database", "guard"),
}
TESTING = ("assert_replays", "replay", "load_histories", "History")
GUARDS = ("once", "Once", "insert", "change", "Change", "create_table", "schema", "forget")
ELSEWHERE = {
    "Status": "events-and-states.md#states", "EventType": "events-and-states.md#events",
    "VerdictKind": "../how-to/check-a-change.md#verdicts",
}  # fmt: skip
INTERNAL = frozenset(
    {"Database.lent", "Database.opened", "Database.opened_async", "Engine.start_call", "Retry.wait_us"}
)
MADE_BY_USERS = frozenset({"Database", "Engine", "Queue", "Rate", "Retry", "Start", "SyncEngine"})

ADVICE: dict[str, str] = {
    "error": "Catch it to catch every error of Perdure.",
    "usage": "Correct the call; the message says how.",
    "invalid_value": "Correct the value; the message names it and what is allowed.",
    "run": "Catch it to catch whatever concerns one run; `run_id` names it.",
    "run_failed": "Look at `__cause__` and `traceback_text`. When the reason is gone: `perdure retry ID`.",
    "run_cancelled": "Nothing, if it was meant; `perdure history ID` shows who asked and why.",
    "run_timed_out": "Start it again under another id with a longer `timeout`, or find the slow step in its history.",
    "run_terminated": "Nothing terminates a run in this version.",
    "step_failed": "Look at `type_name` and `traceback_text`. Where its module is imported, you get the class itself.",
    "step_timed_out": "Give the step a longer `timeout` or a `retry`.",
    "store": "Catch it to catch whatever concerns the database.",
    "blobs_missing": "Never seen by users.",
    "store_conflict": "Never seen by users.",
    "lease_lost": "Never raised to callers in this version; a worker that lost a run says so in its log and drops it.",
    "codec": "Return or pass something that can be stored; `path` and `type_name` say what cannot.",
    "guard": "Roll the transaction back; the message says what is missing or what went wrong.",
    "diverged": "A replay that diverges parks its run; see [parked runs](../how-to/parked-runs.md).",
    "version": "Start the run with the version that is registered here, or leave `version` out.",
    "no_source": "Keep the workflow in a module with a source file; the message names the module and says why not.",
    "not_in_snapshot": "Upgrade the run, if it needs the module; old code that can do without catches `ImportError`.",
    "source_changed_on_disk": "Restart the worker; deploy into a new folder, not over the old one.",
    "version_load_failed": "Set what the old code needs in the environment, or upgrade its runs.",
    "environment_mismatch": "Install what the message names, let workers [build environments]"
    "(../how-to/old-dependencies.md), or upgrade the runs.",
    "host_crashed": "Look in the worker's log for the host's last words; upgrade the runs if the old code is at fault.",
    "not_published": "Publish the code before you start workers with it.",
    "signature_invalid": "Look at what is stored; sign it if it is right (`perdure versions sign`), or trust the key.",
    "snapshot_corrupt": "Find out who altered the database; restore it from a backup.",
    "snapshot_too_large": "Name the data that belongs to the workflow with `resources`, or leave large files out.",
    "unbumped_change": "Bump the version in the decorator; the message names the files that differ.",
    "unknown_version": "Choose one of the versions in the message.",
    "binding_guard": "Nothing, if the upgrade was meant; else look at the log who made it, and revert it.",
    "upgrade_busy": "Wait until the step ends, and apply the plan again.",
    "upgrade_refused": "Read what was found; accept it by name, or leave the run on the version it has.",
    "upgrade_stale": "Nothing: it was checked again, and the outcome says what came of it.",
    "version_closed": "Choose another version; the message says who closed it and why.",
    "version_purged": "Choose another version; the message says who removed it and why.",
}


API_IS = (
    "Everything is imported from `perdure`. Errors have [a page of their own](errors.md). A *duration* is a number "
    'of seconds, a `timedelta`, or text such as `"200ms"`, `"30s"`, `"1h30m"`, `"2d"`.'
)


def python_page() -> str:
    """Return the page on the Python API."""
    parts = [
        "# Python API",
        NOTE,
        API_IS,
    ]
    for title, names in GROUPS.items():
        parts.append(f"## {title}")
        for name in names:
            parts += _entry(name)
    return "\n\n".join(parts) + "\n"


def guard_page() -> str:
    """Return the page on guards."""
    parts = ["# perdure.guard", NOTE, *_paragraphs(guard)]
    for name in GUARDS:
        parts += _entry(name, guard)
    return "\n\n".join(parts).replace("\n### ", "\n## ") + "\n"


def testing_page() -> str:
    """Return the page on the test kit."""
    parts = ["# perdure.testing", NOTE, *_paragraphs(testing)]
    for name in TESTING:
        parts += _entry(name, testing)
    return "\n\n".join(parts).replace("\n### ", "\n## ") + "\n"


def _paragraphs(module: object) -> list[str]:
    return (inspect.getdoc(module) or "").replace("``", "`").split("\n\n")


def _entry(name: str, home: object = perdure) -> Iterator[str]:
    thing = getattr(home, name)
    yield f"### {name}"
    if name in ELSEWHERE:
        yield f"{_text(inspect.getdoc(thing))} See [its values]({ELSEWHERE[name]})."
    elif name == "Duration":
        yield f"The type of a span of time: `{' | '.join(part.__name__ for part in thing.__args__)}`."
    elif thing is guard:
        yield f"{_paragraphs(guard)[0]} See [its page](guard.md)."
    elif thing is blocking:
        yield "The functions of this group for sync workflows; each waits until it is done."
        yield "\n".join(f"- `perdure.blocking.{one}`" for one in blocking.__all__)
    elif inspect.isclass(thing):
        yield from _class(name, thing)
    else:
        yield _code(_signature(name, thing))
        yield _text(inspect.getdoc(thing))


def _class(name: str, thing: Any) -> Iterator[str]:
    if name in MADE_BY_USERS:
        yield _code(_signature(f"class {name}", thing))
    yield _text(inspect.getdoc(thing))
    for member in _members(thing):
        value = inspect.getattr_static(thing, member)
        if isinstance(value, property | cached_property):
            yield f"#### {name}.{member}"
            yield _text(inspect.getdoc(value))
        else:
            yield f"#### {name}.{member}()"
            yield _code(_signature(member, getattr(thing, member)))
            yield _text(inspect.getdoc(getattr(thing, member)))


def _members(thing: Any) -> list[str]:
    """Return what users may call or read of a class: its own, then what it has from other classes of ours."""
    ours = [cls for cls in thing.__mro__ if cls.__module__.startswith("perdure.")]
    found = dict.fromkeys(name for cls in ours for name in vars(cls))
    return [
        name
        for name in found
        if not name.startswith("_")
        and f"{thing.__name__}.{name}" not in INTERNAL
        and isinstance(value := inspect.getattr_static(thing, name), FunctionType | property | cached_property)
        and (doc := inspect.getdoc(value))
        and not doc.endswith("Internal.")
    ]


def _signature(name: str, thing: Callable[..., Any]) -> str:
    signature = inspect.signature(thing)
    parts: list[str] = []
    starred = False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            parts.append("*")
        starred |= parameter.kind is parameter.VAR_POSITIONAL
        parts.append(_parameter(parameter))
        if parameter.kind is parameter.POSITIONAL_ONLY and not _follows_positional(signature, parameter):
            parts.append("/")
    returns = (
        "" if signature.return_annotation is signature.empty else f" -> {_annotation(signature.return_annotation)}"
    )
    prefix = "" if name.startswith("class ") else ("async def " if inspect.iscoroutinefunction(thing) else "def ")
    text = f"{prefix}{name}({', '.join(parts)}){'' if name.startswith('class ') else returns}"
    if len(text) <= 100:
        return text
    lines = "".join(f"    {part},\n" for part in parts)
    return f"{prefix}{name}(\n{lines}){'' if name.startswith('class ') else returns}"


def _follows_positional(signature: inspect.Signature, parameter: inspect.Parameter) -> bool:
    after = list(signature.parameters.values())
    following = after[after.index(parameter) + 1 :]
    return bool(following) and following[0].kind is parameter.POSITIONAL_ONLY


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
    text = stars + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f"{' = ' if ':' in text else '='}{parameter.default!r}"
    return text


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else str(getattr(annotation, "__name__", annotation))


def _code(text: str) -> str:
    # "text", not "python": a signature is no program.
    return f"```text\n{text}\n```"


_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns):$")
_ITEM = re.compile(r"^ {4}(\*{0,2}\w+(?:, \w+)*): (.*)$")


def _text(doc: str | None) -> str:
    """Turn a docstring in Google's form into Markdown."""
    lines: list[str] = []
    inside = False
    for line in (doc or "").splitlines():
        if _SECTION.match(line):
            inside = True
            lines += [f"*{line.rstrip(':')}*", ""]
        elif inside and (item := _ITEM.match(line)):
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif inside and line.strip():
            lines.append(f"  {line.strip()}")
        else:
            inside = inside and not line
            lines.append(line)
    text = "\n".join(lines).replace("``", "`")
    return re.sub(r"(?m)^(.*[^\n])\n(\*(?:Args|Attributes|Raises|Returns)\*)$", r"\1\n\n\2", text)


ERRORS_ARE = (
    "Every error is a `PerdureError` with a stable `code`. Its text says what happened, to which run and step, and "
    "what to do next. All are exported from `perdure`, except the internal `BlobsMissing` and `StoreConflict`."
)


def errors_page() -> str:
    """Return the page on errors."""
    tree = (errors.__doc__ or "").partition("\n\n")[2].partition("\n\nInvariants")[0]
    lines = [
        "# Errors",
        "",
        NOTE,
        "",
        ERRORS_ARE,
        "",
        "```text",
        *(line.removeprefix("    ") for line in tree.splitlines()),
        "```",
        "",
        "| code | class | meaning | what to do |",
        "|---|---|---|---|",
    ]
    for name in ("PerdureError", *(name for name in errors.__all__ if name != "PerdureError")):
        cls = getattr(errors, name)
        meaning = (inspect.getdoc(cls) or "").splitlines()[0]
        advice = ADVICE.get(cls.code) or _sentence(cls.default_hint)
        lines.append(f"| `{cls.code}` | `{name}` | {meaning.replace('``', '`')} | {advice} |")
    lines += ["", "## Attributes", "", "Beside `run_id`, `step`, `text` and `hint`, which every error has:", ""]
    for name in errors.__all__:
        doc = inspect.getdoc(getattr(errors, name)) or ""
        if "Attributes:" in doc:
            attributes = _text("Attributes:" + doc.partition("Attributes:")[2]).partition("\n\n")[2]
            lines += [f"**{name}**", "", attributes, ""]
    return "\n".join(lines).rstrip() + "\n"


def _sentence(hint: str) -> str:
    return f"{hint[:1].upper()}{hint[1:]}." if hint else ""


PAGES = {"python.md": python_page, "errors.md": errors_page, "guard.md": guard_page, "testing.md": testing_page}


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
