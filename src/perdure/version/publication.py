"""What registering a version leads to: nothing new, one more label, or a new version; or a refusal.

The decision is a pure function of what the database knows. Whoever carries it out holds the workflow's lock, and the
unique constraints stand behind that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from perdure.errors import NotPublished, UnbumpedChange
from perdure.version.known import Known, KnownLabel, KnownVersion, unlabelled
from perdure.version.label import SHORT, Semver, parse
from perdure.version.notice import Notice

_MOST_NAMED: Final = 5

OnUnbumped = Literal["auto", "refuse"]
Registration = Literal["worker", "published-only"]

Differing = Callable[[KnownVersion], Sequence[str]]
"""Gives what differs between a known version and the one that is registered: paths of files, and what else counts."""


class Decision(NamedTuple):
    """What to write.

    Attributes:
        action: ``seen``: nothing; ``label``: a label on a known version; ``version``: a new version with its label.
        version: the known version; None where it is new.
        label: text of the label the version goes by.
        semver: semantic version of that label.
        notices: what to say in the log.
    """

    action: Literal["seen", "label", "version"]
    version: KnownVersion | None
    label: str
    semver: str
    notices: tuple[Notice, ...] = ()


def decide(
    known: Known,
    sha256: str,
    semver: str | None,
    *,
    on_unbumped: OnUnbumped = "auto",
    registration: Registration = "worker",
    differing: Differing | None = None,
) -> Decision:
    """Return what registering this content under this semantic version leads to.

    Args:
        known: versions and labels of the workflow.
        sha256: the content's identity.
        semver: the semantic version it is declared with; None where it declares none.
        on_unbumped: whether a change that keeps its number is labelled apart or refused.
        registration: whether this process may publish.
        differing: tells what differs from a known version, for the message of a refusal.

    Raises:
        InvalidValue: the semantic version is none.
        UnbumpedChange: the number belongs to other content, and the policy refuses that.
        NotPublished: the content is unknown, and this process may not publish.
    """
    version = known.by_hash(sha256)
    wanted = unlabelled() if semver is None else parse(semver, f"version of {known.workflow}")
    if registration == "published-only":
        return _published(known, version, sha256, wanted)
    same = [label for label in known.labels if label.semver == wanted.text]
    pair = next((label for label in same if version is not None and label.version_id == version.id), None)
    if pair is not None:
        return _seen(known, pair)
    if semver is None:
        label = known.free_label(wanted, sha256)
    elif not same and all(one.text != wanted.text for one in known.labels):
        label = wanted.text
    elif on_unbumped == "refuse":
        raise _unbumped(known, wanted, sha256, same, differing)
    else:
        label = known.free_label(wanted, sha256)
    notices = tuple(_notices(known, version, wanted, label))
    return Decision("version" if version is None else "label", version, label, wanted.text, notices)


def _published(known: Known, version: KnownVersion | None, sha256: str, wanted: Semver) -> Decision:
    label = known.label_of(version) if version is not None else None
    if version is None or label is None:
        raise NotPublished(
            f"this worker's {known.workflow} ({sha256[:SHORT]}) has not been published and registration is "
            '"published-only". Run perdure versions publish.'
        )
    own = next((one for one in known.labels if one.version_id == version.id and one.semver == wanted.text), label)
    return _seen(known, own)


def _seen(known: Known, label: KnownLabel) -> Decision:
    newest = known.newest()
    notices: tuple[Notice, ...] = ()
    if newest is not None and newest.version_id != label.version_id and known.place(newest) > known.place(label):
        text = (
            f"new '{known.workflow}' runs start on {newest.text}, this worker carries {label.text}; "
            f"to roll back run: perdure rollback {known.workflow}"
        )
        notices = (Notice("older_than_default", text),)
    return Decision("seen", known.version_of(label), label.text, label.semver, notices)


def _unbumped(
    known: Known, wanted: Semver, sha256: str, same: Sequence[KnownLabel], differing: Differing | None
) -> UnbumpedChange:
    owner = next((label for label in same if label.text == wanted.text), same[-1] if same else None)
    names = list(differing(known.version_of(owner))) if differing is not None and owner is not None else []
    what = f" ({_list(names)})" if names else ""
    return UnbumpedChange(
        f"{known.workflow} {wanted.text} is already published with other content{what}. Bump the version, or set "
        f'on_unbumped="auto" to publish {known.free_label(wanted, sha256)}.'
    )


def _notices(known: Known, version: KnownVersion | None, wanted: Semver, label: str) -> list[Notice]:
    """Return what there is to say about a new label."""
    name = known.workflow
    notices: list[Notice] = []
    earlier = known.label_of(version) if version is not None else None
    if version is not None and earlier is not None and version.status != "active":
        text = (
            f"{name} {label} has the content of {earlier.text}, {version.status} {version.changed}. Labelled, not the "
            f"default. To allow it: perdure versions restore {name}@{label}."
        )
        return [Notice("withdrawn_content", text)]
    if earlier is not None:
        text = f"{name} {label} has the same content as {earlier.text}; labelled, no new version."
        notices.append(Notice("same_content", text))
    newest = known.newest()
    if wanted.is_pre_release:
        on = f"; new runs start on {newest.text}" if newest is not None else ""
        notices.append(Notice("pre_release", f"{name} {label} is a pre-release, so it is not the default{on}."))
    elif newest is not None and known.semver(newest).precedence > wanted.precedence:
        text = f"{name} {label} is lower than {newest.text}, so it is not the default."
        notices.append(Notice("lower_than_default", text))
    return notices


def _list(names: list[str]) -> str:
    """Return differences as the words of a sentence, such as ``shop/flow.py, shop/pay.py differ``."""
    shown = names[:_MOST_NAMED]
    if len(names) > len(shown):
        return f"{', '.join(shown)} and {len(names) - len(shown)} more differ"
    return f"{', '.join(shown)} {'differs' if len(shown) == 1 else 'differ'}"
