"""The pulse: outcomes, waits and run times over the last hours as series for charts, and the present backlog."""

import threading
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from onerow.core.times import read
from onerow.engine.control.stats import KEPT_FOR, STATS, Outcomes, add_up, minute_of, quantile
from onerow.engine.views.board import Board
from onerow.ports import Note, Store

MOST_POINTS = 120
LONGEST = timedelta(minutes=KEPT_FOR)
_MINUTE = timedelta(minutes=1)
_STEPS = (1, 2, 3, 4, 5, 6, 10, 12)  # minutes; with the last one, LONGEST has MOST_POINTS
_SETTLED_AFTER = 5  # minutes: workers write only the current minute's counts, and a replica may lag behind
_EPOCH = read("1970-01-01T00:00:00Z")

ByPhase = dict[tuple[str, str], Outcomes]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Values by point of `Pulse.times`; durations in ms, None where no attempt ended."""

    done: list[int]
    failed: list[int]
    retried: list[int]
    cancelled: list[int]
    rescued: list[int]
    wait_p50: list[int | None]
    wait_p95: list[int | None]
    wait_p99: list[int | None]
    run_p50: list[int | None]
    run_p95: list[int | None]
    run_p99: list[int | None]


class PhasePulse(msgspec.Struct, frozen=True, kw_only=True):
    """The series of one phase and the tasks that stand there now."""

    pipeline: str
    phase: str
    series: Series
    waiting: int = 0
    processing: int = 0
    parked: int = 0
    failed: int = 0
    oldest: datetime | None = None  # the earliest run_at of the waiting tasks


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """Series of the last `over`: one point per `step`, oldest first; the last point is not complete yet."""

    at: datetime
    over: timedelta  # as asked, but at most the day for which statistics are kept
    step: timedelta
    times: list[datetime]  # the beginning of each point
    total: Series
    phases: list[PhasePulse]  # in the order of the board


class MinuteCache:
    """Outcomes by minute. Minutes that have passed are read once, so that a live chart reads some minutes only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._settled: dict[str, ByPhase] = {}
        self._from = ""  # the settled minutes since this one are all there
        self._until = ""  # … up to this one, exclusive

    def read(self, store: Store, now: datetime, over: timedelta) -> dict[str, ByPhase]:
        """Return the outcomes of each minute since `now - over` that has any."""
        since, settled = minute_of(now - over), minute_of(now - _SETTLED_AFTER * _MINUTE)
        with self._lock:
            if not self._until or since < self._from or settled < self._until:
                self._settled, self._from, self._until = {}, since, since
            found = by_minute(store.notes(STATS, since=self._until))
            self._settled |= {minute: outcomes for minute, outcomes in found.items() if minute < settled}
            self._until = max(self._until, settled)
            oldest = minute_of(now - LONGEST)
            self._settled = {minute: each for minute, each in self._settled.items() if minute >= oldest}
            self._from = max(self._from, oldest)
            return {minute: each for minute, each in (self._settled | found).items() if minute >= since}


def by_minute(notes: Iterable[Note]) -> dict[str, ByPhase]:
    """Sum the notes of all workers by minute, pipeline and phase."""
    grouped: dict[str, list[Note]] = {}
    for note in notes:
        grouped.setdefault(note.name.partition("/")[0], []).append(note)
    return {minute: add_up(group) for minute, group in grouped.items()}


def step_of(over: timedelta) -> timedelta:
    """Return the shortest step with which a range has at most MOST_POINTS points."""
    return next(step * _MINUTE for step in _STEPS if over <= step * MOST_POINTS * _MINUTE)


def bounded(over: timedelta) -> timedelta:
    """Return the range that can be shown: at least a minute, at most what is kept."""
    return min(max(over, _MINUTE), LONGEST)


def build_pulse(
    minutes: Mapping[str, ByPhase], board: Board, now: datetime, over: timedelta, pipeline: str | None
) -> Pulse:
    """Build the series; points begin at whole steps since 1970, so that they keep their place as time passes."""
    step = step_of(over)
    count = max(1, over // step)
    last = _EPOCH + (now - _EPOCH) // step * step
    times = [last - step * (count - 1 - number) for number in range(count)]
    points: list[ByPhase] = [{} for _ in times]
    for minute, outcomes in minutes.items():
        number = (read(f"{minute}:00Z") - times[0]) // step
        if 0 <= number < count:
            for phase, each in outcomes.items():
                if pipeline in (None, phase[0]):
                    points[number].setdefault(phase, Outcomes(run={}, wait={})).add(each)
    lanes = {
        (lane.pipeline, lane.phase): lane
        for each in board.pipelines
        if pipeline in (None, each.name)
        for lane in each.lanes
    }
    gone = sorted({phase for point in points for phase in point} - set(lanes))  # purged, or renamed since
    phases = []
    for phase in (*lanes, *gone):
        lane = lanes.get(phase)
        series = _series([point.get(phase, Outcomes()) for point in points])
        if lane is None:
            phases.append(PhasePulse(pipeline=phase[0], phase=phase[1], series=series))
        else:
            phases.append(
                PhasePulse(
                    pipeline=phase[0], phase=phase[1], series=series, waiting=lane.waiting, processing=lane.processing,
                    parked=lane.parked, failed=lane.failed, oldest=lane.oldest,
                )
            )  # fmt: skip
    total = _series([_sum(point.values()) for point in points])
    return Pulse(at=now, over=over, step=step, times=times, total=total, phases=phases)


def _sum(outcomes: Iterable[Outcomes]) -> Outcomes:
    total = Outcomes(run={}, wait={})
    for each in outcomes:
        total.add(each)
    return total


def _series(points: list[Outcomes]) -> Series:
    return Series(
        done=[each.done for each in points],
        failed=[each.failed for each in points],
        retried=[each.retried for each in points],
        cancelled=[each.cancelled for each in points],
        rescued=[each.rescued for each in points],
        wait_p50=[quantile(each.wait, 0.5) for each in points],
        wait_p95=[quantile(each.wait, 0.95) for each in points],
        wait_p99=[quantile(each.wait, 0.99) for each in points],
        run_p50=[quantile(each.run, 0.5) for each in points],
        run_p95=[quantile(each.run, 0.95) for each in points],
        run_p99=[quantile(each.run, 0.99) for each in points],
    )
