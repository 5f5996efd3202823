"""Applies every rule to every run, and says what was looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from perdure.verify import log, standing
from perdure.verify.evidence import Case, Evidence, Finding, Grave
from perdure.verify.queues import Ledger
from perdure.verify.versions import Versions

RULES: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    log.readable,
    log.sequence,
    log.chain,
    log.times,
    log.epochs,
    log.operations,
    log.attempts,
    standing.transitions,
    standing.status,
    standing.due,
    standing.inbox,
    standing.tags,
)


@dataclass(slots=True)
class Report:
    """What was found."""

    runs: int = 0
    events: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether nothing is broken."""
        return not self.findings

    def as_data(self) -> dict[str, Any]:
        """Return the report as plain data, for ``--json``."""
        findings = [finding._asdict() for finding in self.findings]
        return {"runs": self.runs, "events": self.events, "findings": findings}


def examine(evidence: Evidence, acknowledged: Iterable[str] = (), slack_us: int | None = None) -> Report:
    """Check everything.

    Args:
        evidence: the stored rows.
        acknowledged: ids of runs whose start was confirmed to a caller: each must be there (I1).
        slack_us: microseconds by which workers' clocks may have been ahead; None: what ``evidence`` says.
    """
    report = Report()
    ledger = Ledger(evidence, evidence.slack_us if slack_us is None else slack_us)
    versions = Versions(evidence)
    present: set[str] = set()
    for case in evidence.cases():
        report.runs += 1
        report.events += len(case.facts)
        present.add(case.row.id)
        for rule in RULES:
            report.findings.extend(rule(case))
        report.findings.extend(ledger.case(case))
        report.findings.extend(versions.case(case))
    report.findings.extend(ledger.findings())
    report.findings.extend(versions.findings())
    for grave in evidence.graves():
        report.findings.extend(_grave(grave, present))
        present.add(grave.run_id)
    for table, key in evidence.strays():
        report.findings.append(Finding("stray", None, None, f"a row of {table} belongs to no run: {key}"))
    for text in evidence.damage():
        report.findings.append(Finding("file", None, None, text))
    for run_id in acknowledged:
        if run_id not in present:
            report.findings.append(
                Finding("acknowledged", run_id, None, "its start was confirmed, and it is not there")
            )
    return report


def _grave(grave: Grave, present: set[str]) -> Iterator[Finding]:
    """G2: an id belongs to a run or to what a purged one left, never to both."""
    if grave.run_id in present:
        yield Finding("tombstone", grave.run_id, None, "the run is there and has a tombstone")
    if grave.status not in standing.ENDED:
        yield Finding("tombstone", grave.run_id, None, f"the tombstone says {grave.status}, which is no end")
