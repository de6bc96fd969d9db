"""The board: pipelines, their phases in order, and how much stands, runs and failed in each."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from onerow.core.plan import PhasePlan, Plan
from onerow.core.status import CANCELLED, COMPLETED, FAILED, PROCESSING, WAITING, Status
from onerow.engine.control.definitions import Controls, Pause
from onerow.engine.control.stats import Outcomes, quantile
from onerow.ports import StoreCounts, TaskCount


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of the board."""

    pipeline: str
    phase: str
    kind: str  # run, batch, command, wait_until, wait_for; '' when no code knows it
    waiting: int = 0
    processing: int = 0
    parked: int = 0
    failed: int = 0
    completed: int = 0
    cancelled: int = 0
    oldest: datetime | None = None  # since when the first of those waiting is (or when it will be) due
    limit: int | None = None  # at once
    per_key: int | None = None
    paused: Pause | None = None
    held_until: datetime | None = None
    held_why: str = ""  # what the other side said when it asked us to wait
    workers: int = 0  # live ones that serve it
    per_minute: float = 0.0  # done, over the last minutes
    failed_per_minute: float = 0.0
    run_p50: int | None = None  # ms
    run_p95: int | None = None
    wait_p95: int | None = None


class PipelineBoard(msgspec.Struct, frozen=True):
    """One pipeline of the board."""

    name: str
    lanes: list[Lane]
    published: bool = True

    @property
    def completed(self) -> int:
        return sum(lane.completed for lane in self.lanes)


class Board(msgspec.Struct, frozen=True):
    """All pipelines at one moment; rates and times are those of the last `over`."""

    at: datetime
    pipelines: list[PipelineBoard]
    ended_at: datetime
    over: timedelta


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The whole store in a few numbers."""

    at: datetime
    store: str
    waiting: int
    parked: int
    processing: int
    completed: int
    failed: int
    cancelled: int
    ended_at: datetime  # when the ended ones were counted
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
    """The board from what the store says; without `everyones`, for one tenant, nothing that others' tasks met."""
    places: dict[tuple[str, str], list[TaskCount]] = {}
    for tally in store_counts.tallies:
        places.setdefault((tally.pipeline, tally.phase), []).append(tally)
    boards = []
    for name in sorted({*plans, *(pipeline for pipeline, _ in places)}):
        plan = plans.get(name)
        phases = {phase.name: phase for phase in plan.phases} if plan is not None else {}
        strangers = sorted(phase for pipeline, phase in places if pipeline == name and phase not in phases)
        lanes = [
            _lane(
                name,
                phase,
                phases.get(phase),
                places.get((name, phase), []),
                controls,
                outcomes.get((name, phase), Outcomes()),
                serving.get((name, phase), 0),
                now,
                over,
                everyones,
            )
            for phase in [*phases, *strangers]
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
    counts = {(tally.status, tally.parked): tally for tally in tallies}

    def count(status: Status, parked: bool) -> int:
        tally = counts.get((status, parked))
        return 0 if tally is None else tally.count

    waiting = counts.get((WAITING, False))
    limit, per_key = (None, None) if plan is None else controls.limits_of(pipeline, plan)
    minutes = over / timedelta(minutes=1)
    hold = controls.hold_of(pipeline, phase, now)
    return Lane(
        pipeline=pipeline,
        phase=phase,
        kind="" if plan is None else plan.kind,
        waiting=count(WAITING, False),
        processing=count(PROCESSING, False),
        parked=count(WAITING, True),
        failed=count(FAILED, False),
        completed=count(COMPLETED, False),
        cancelled=count(CANCELLED, False),
        oldest=None if waiting is None else waiting.oldest,
        limit=limit,
        per_key=per_key,
        paused=controls.pause_of(pipeline, phase),
        held_until=controls.held_until(pipeline, phase, now),
        held_why="" if hold is None or not everyones else hold.why,
        workers=workers,
        per_minute=outcomes.done / minutes,
        failed_per_minute=outcomes.failed / minutes,
        run_p50=quantile(outcomes.run, 0.5),
        run_p95=quantile(outcomes.run, 0.95),
        wait_p95=quantile(outcomes.wait, 0.95),
    )
