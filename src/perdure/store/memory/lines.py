"""The queues of the store in memory: settings, slots, turns, and which run is next. The plainest way there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perdure.model.filter import CHANGES_SHOWN, QueueState
from perdure.model.queue import Allowance, QueueRow, Usage, place_of, rate_bucket, revised
from perdure.model.status import TERMINAL, Status
from perdure.store.slots import STRANDED_US

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perdure.model.claim import ClaimRequest
    from perdure.model.queue import QueueChange
    from perdure.model.run import RunRow
    from perdure.model.write import SetQueue

Lane = tuple[str, str, int, str]
"""Queue, code, priority, partition key: runs that come one after the other."""


class _Candidate(NamedTuple):
    place: tuple[int, int]
    rank: int
    key: str
    order: int
    row: RunRow
    lane: Lane | None
    holds: bool


class Lines:
    """What a claim looks at beside the runs themselves.

    Attributes:
        held: whether the last draw left runs because of a limit.
        open_at: when a rate that it found used up lets the next run be claimed.
    """

    def __init__(self, runs: dict[str, RunRow]) -> None:
        self._runs = runs
        self._rows: dict[str, QueueRow] = {}
        self._changes: dict[str, list[QueueChange]] = {}
        self._turns: dict[Lane, int] = {}
        self._slots: dict[str, int] = {}
        """Run id to the epoch its slot is for: it counts while the run is owned in that epoch."""
        self._starts: dict[str, list[int]] = {}
        self._unique: dict[tuple[str, str], str] = {}
        self.held: bool = False
        self.open_at: int | None = None

    # -- writes --------------------------------------------------------------------------------------------------

    def set(self, write: SetQueue) -> None:
        """Change settings, and give a slot to every run that is owned."""
        if any(change.commit_id == write.commit_id for change in self._changes.get(write.queue, ())):
            return
        result = revised(self._rows.get(write.queue), write)
        if result is None:
            return
        runs = [run for run in self._runs.values() if run.queue == write.queue]
        holders = [run for run in runs if self._holds(run)]
        self._rows[write.queue], change = result
        self._changes.setdefault(write.queue, []).append(change)
        for run in runs:
            self._slots.pop(run.id, None)
        for run in runs:
            if run.status == Status.RUNNING or (run in holders and result[0].hold_while_waiting):
                self._slots[run.id] = run.epoch

    def is_counted(self, queue: str) -> bool:
        """Whether a run of the queue can only be claimed by a claim."""
        row = self._rows.get(queue)
        return row is not None and row.is_counted

    def holder(self, queue: str, key: str | None) -> RunRow | None:
        """Return the run that has a deduplication key."""
        run = self._runs.get(self._unique.get((queue, key or ""), ""))
        return None if key is None or run is None or run.status in TERMINAL else run

    def created(self, row: RunRow, deduplication_key: str | None) -> None:
        """Note what a new run implies."""
        if deduplication_key is not None:
            self._unique[row.queue, deduplication_key] = row.id
        self.woken(row)

    def woken(self, row: RunRow) -> None:
        """Note that a run stands in its line: its key's turn is not later than its time."""
        if row.wake_at is not None and (lane := _lane(row)) in self._turns:
            self._turns[lane] = min(self._turns[lane], row.wake_at)

    def claimed(self, row: RunRow, epoch: int, now: int) -> None:
        """Note that a run was claimed."""
        settings = self._rows.get(row.queue)
        if settings is not None and settings.is_limited:
            self._slots[row.id] = epoch
        if settings is not None and settings.rate_limit is not None:
            self._starts.setdefault(row.queue, []).append(rate_bucket(settings, now))

    # -- which run is next ---------------------------------------------------------------------------------------

    def choose(
        self, request: ClaimRequest, now: int, may: Callable[[RunRow], bool], gone_since: Callable[[str], int | None]
    ) -> list[RunRow]:
        """Return the runs to claim: of each queue its share first, then whatever there is, in the order of queues."""
        self.held, self.open_at = False, None
        queues = request.queues
        if request.only is not None:
            queues = tuple(run.queue for run in (self._runs.get(request.only),) if run is not None)
        draws = [self._draw(queue, request, now, may) for queue in queues]
        chosen: list[RunRow] = []
        for share, draw in [*zip(request.shares, draws, strict=False), *((request.limit, draw) for draw in draws)]:
            for _ in range(min(share, request.limit - len(chosen))):
                row = next(draw, None)
                if row is None:
                    break
                chosen.append(row)
        return chosen + [run for queue in queues for run in self._stranded(queue, request, now, gone_since)]

    def _stranded(
        self, queue: str, request: ClaimRequest, now: int, gone_since: Callable[[str], int | None]
    ) -> list[RunRow]:
        """Return the runs that keep a slot of a full queue, and that nobody takes over."""
        settings = self._rows.get(queue)
        if settings is None or not settings.is_limited or not request.take_over or request.only is not None:
            return []
        if not Allowance(settings, self._usage(queue, request.worker_id, now)).full or settings.paused:
            return []
        found = []
        for run in self._runs.values():
            since = None if run.owner is None else gone_since(run.owner)
            foreign = run.queue == queue and run.code not in request.codes
            if foreign and since is not None and since <= now - STRANDED_US:
                found.append(run)
        return found

    def _draw(self, queue: str, request: ClaimRequest, now: int, may: Callable[[RunRow], bool]) -> Iterator[RunRow]:
        settings = self._rows.get(queue)
        if settings is not None and settings.paused:
            return
        fair = settings is not None and bool(settings.fair)
        allowance = Allowance(settings, self._usage(queue, request.worker_id, now))
        free, lanes = self._stand(settings, [run for run in self._runs.values() if run.queue == queue and may(run)])
        drawn = 0
        while free or lanes:
            while free and not allowance.admits(free[-1].row.partition_key, holds=free[-1].holds):
                free.pop()
                self.held = True
            best = free[-1] if free else None
            for lane, runs in lanes.items():
                if not allowance.admits(lane[3]):
                    self.held = True
                    continue
                head = self._head(settings, lane, *runs[-1])
                best = head if best is None else min(best, head, key=_turn_of)
            if best is None:
                break
            drawn += 1
            allowance.take(best.row.partition_key, holds=best.holds)
            if best.lane is None:
                free.pop()
            else:
                lanes[best.lane].pop()
                if not lanes[best.lane]:
                    del lanes[best.lane]
                self._turn(best.lane, best.row, now - request.limit + drawn if fair else None)
            yield best.row
        if settings is not None and allowance.late and self.held:
            self._opens(settings, [*self._in_window(settings, now), *[rate_bucket(settings, now)] * drawn])

    def _stand(
        self, settings: QueueRow | None, waiting: list[RunRow]
    ) -> tuple[list[_Candidate], dict[Lane, list[tuple[int, RunRow]]]]:
        """Return the runs that stand for themselves, and those that stand in the line of their key; the first last."""
        free: list[_Candidate] = []
        lanes: dict[Lane, list[tuple[int, RunRow]]] = {}
        for order, run in enumerate(waiting):
            holds = self._holds(run)
            if run.partition_key is not None and run.owner is None and not holds:
                lanes.setdefault(_lane(run), []).append((order, run))
                continue
            rank = run.wake_at
            if rank is None:
                rank = -1 if settings is None or settings.ageing_us is None else run.updated_at
            free.append(_Candidate(place_of(settings, run.priority, rank), rank, "", order, run, None, holds))
        free.sort(key=_turn_of, reverse=True)
        for runs in lanes.values():
            runs.sort(key=lambda one: (one[1].wake_at or 0, one[0]), reverse=True)
        return free, lanes

    def _head(self, settings: QueueRow | None, lane: Lane, order: int, run: RunRow) -> _Candidate:
        rank = max(self._turns.get(lane, 0), run.wake_at or 0)
        return _Candidate(place_of(settings, run.priority, rank), rank, lane[3], order, run, lane, holds=False)

    def _turn(self, lane: Lane, taken: RunRow, turn: int | None) -> None:
        more = any(run.wake_at is not None and _lane(run) == lane and run is not taken for run in self._runs.values())
        if turn is None or not more:
            self._turns.pop(lane, None)
        else:
            self._turns[lane] = turn

    def _holds(self, run: RunRow) -> bool:
        settings = self._rows.get(run.queue)
        if settings is None or self._slots.get(run.id) != run.epoch:
            return False
        return run.status == Status.RUNNING or bool(settings.hold_while_waiting and run.status == Status.WAITING)

    def _usage(self, queue: str, worker_id: str, now: int) -> Usage:
        holders = [run for run in self._runs.values() if run.queue == queue and self._holds(run)]
        keys: dict[str, int] = {}
        for run in holders:
            if run.partition_key is not None:
                keys[run.partition_key] = keys.get(run.partition_key, 0) + 1
        mine = sum(run.owner == worker_id for run in holders)
        settings = self._rows.get(queue)
        return Usage(len(holders), mine, keys, len(self._in_window(settings, now)) if settings is not None else 0)

    def _in_window(self, settings: QueueRow, now: int) -> list[int]:
        since = now - (settings.rate_us or 0)
        starts = sorted(at for at in self._starts.get(settings.name, ()) if at > since)
        return starts if settings.rate_limit is not None else []

    def _opens(self, settings: QueueRow, starts: list[int]) -> None:
        at = starts[len(starts) - (settings.rate_limit or 0)] + (settings.rate_us or 0)
        self.open_at = at if self.open_at is None else min(at, self.open_at)

    # -- reads ---------------------------------------------------------------------------------------------------

    def states(self, now: int) -> tuple[QueueState, ...]:
        """Return every queue that has settings or open runs."""
        states = []
        open_runs = [run for run in self._runs.values() if run.wake_at is not None or run.status == Status.RUNNING]
        for name in sorted({*self._rows, *(run.queue for run in open_runs)}):
            runs = [run for run in open_runs if run.queue == name]
            due = [run.wake_at for run in runs if run.wake_at is not None and run.wake_at <= now]
            later = sum(run.wake_at is not None and run.wake_at > now for run in runs)
            settings, usage = self._rows.get(name, QueueRow(name)), self._usage(name, "", now)
            states.append(
                QueueState(
                    settings, len(due), later, len(runs) - len(due) - later,
                    usage.total if settings.is_limited else 0, usage.starts, min(due, default=None),
                    tuple(self._changes.get(name, ())[: -CHANGES_SHOWN - 1 : -1]),
                )
            )  # fmt: skip
        return tuple(states)


def _lane(row: RunRow) -> Lane:
    return row.queue, row.code, row.priority, row.partition_key or ""


def _turn_of(candidate: _Candidate) -> tuple[tuple[int, int], int, str, int]:
    return candidate.place, candidate.rank, candidate.key, candidate.order
