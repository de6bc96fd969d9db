"""The board: pipelines, their phases in order, and task counts and rates of each phase."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from onerow.core.plan import CODE_KINDS, PhasePlan, Plan
from onerow.core.status import CANCELLED, COMPLETED, FAILED, PROCESSING, WAITING, Status
from onerow.core.times import read
from onerow.engine.control.definitions import Controls, Pause
from onerow.engine.control.stats import Outcomes, quantile
from onerow.ports import StoreCounts, TaskCount


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of the board."""

    pipeline: str
    phase: str
    kind: str  # run, batch, command, wait_until, wait_for; '' if no published definition has it
    waits_for: str = ""  # of a phase without code: the name of its signal, or the payload field with its time
    waiting: int = 0
    processing: int = 0
    parked: int = 0
    failed: int = 0
    completed: int = 0
    cancelled: int = 0
    oldest: datetime | None = None  # the earliest run_at of the waiting tasks
    limit: int | None = None  # concurrency
    per_key: int | None = None
    paused: Pause | None = None
    held_until: datetime | None = None
    held_why: str = ""  # the error of the handler that met a rate limit
    workers: int = 0  # live workers that serve the phase
    per_minute: float = 0.0  # completed attempts
    failed_per_minute: float = 0.0
    run_p50: int | None = None  # ms
    run_p95: int | None = None
    wait_p95: int | None = None

    @property
    def has_code(self) -> bool:
        """Whether a published definition has the phase, and workers run its tasks."""
        return self.kind in CODE_KINDS


class PipelineBoard(msgspec.Struct, frozen=True):
    """One pipeline of the board."""

    name: str
    lanes: list[Lane]
    published: bool = True

    @property
    def completed(self) -> int:
        return sum(lane.completed for lane in self.lanes)


class Board(msgspec.Struct, frozen=True):
    """All pipelines at one time; rates and durations cover the last `over`."""

    at: datetime
    pipelines: list[PipelineBoard]
    ended_at: datetime
    over: timedelta


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of the whole store."""

    at: datetime
    store: str
    waiting: int
    parked: int
    processing: int
    completed: int
    failed: int
    cancelled: int
    ended_at: datetime  # when the ended tasks were counted
    oldest: datetime | None
    workers: int
    per_minute: float


def build_board(
    plans: Mapping[str, Plan],
    store_counts: StoreCounts,
    controls: Controls,
    outcomes: Mapping[tuple[str, str], Outcomes],
    serving: Mapping[tuple[str, str], int],
    now: datetime,
    over: timedelta,
    *,
    everyones: bool = True,
) -> Board:
    """Build the board; without `everyones` it is for one user and leaves out errors of other users' tasks."""
    counts_of: dict[tuple[str, str], list[TaskCount]] = {}
    for line in store_counts.counts:
        counts_of.setdefault((line.pipeline, line.phase), []).append(line)
    boards = []
    for name in sorted({*plans, *(pipeline for pipeline, _ in counts_of)}):
        plan = plans.get(name)
        phases = {phase.name: phase for phase in plan.phases} if plan is not None else {}
        unknown_phases = sorted(phase for pipeline, phase in counts_of if pipeline == name and phase not in phases)
        lanes = [
            _lane(
                name,
                phase,
                phases.get(phase),
                counts_of.get((name, phase), []),
                controls,
                outcomes.get((name, phase), Outcomes()),
                serving.get((name, phase), 0),
                now,
                over,
                everyones,
            )
            for phase in [*phases, *unknown_phases]
        ]
        boards.append(PipelineBoard(name, lanes, plan is not None))
    return Board(now, boards, store_counts.ended_at, over)


def _lane(
    pipeline: str,
    phase: str,
    plan: PhasePlan | None,
    tallies: Iterable[TaskCount],
    controls: Controls,
    outcomes: Outcomes,
    workers: int,
    now: datetime,
    over: timedelta,
    everyones: bool,
) -> Lane:
    counts = {(line.status, line.parked): line for line in tallies}

    def count(status: Status, parked: bool) -> int:
        line = counts.get((status, parked))
        return 0 if line is None else line.count

    waiting = counts.get((WAITING, False))
    limit, per_key = (None, None) if plan is None else controls.limits_of(pipeline, plan)
    minutes = over / timedelta(minutes=1)
    names = (phase,) if plan is None else plan.names
    hold = controls.hold_of(pipeline, names, now)
    return Lane(
        pipeline=pipeline,
        phase=phase,
        kind="" if plan is None else plan.kind,
        waits_for="" if plan is None else plan.signal or plan.field,
        waiting=count(WAITING, False),
        processing=count(PROCESSING, False),
        parked=count(WAITING, True),
        failed=count(FAILED, False),
        completed=count(COMPLETED, False),
        cancelled=count(CANCELLED, False),
        oldest=None if waiting is None else waiting.oldest,
        limit=limit,
        per_key=per_key,
        paused=controls.pause_of(pipeline, names),
        held_until=None if hold is None else read(hold.until),
        held_why="" if hold is None or not everyones else hold.why,
        workers=workers,
        per_minute=outcomes.done / minutes,
        failed_per_minute=outcomes.failed / minutes,
        run_p50=quantile(outcomes.run, 0.5),
        run_p95=quantile(outcomes.run, 0.95),
        wait_p95=quantile(outcomes.wait, 0.95),
    )
