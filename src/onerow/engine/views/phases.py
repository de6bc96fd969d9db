"""Phases: how each is configured, what operators set, how it performs, and which workers can run it."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from onerow.core.durations import spell_duration
from onerow.core.plan import Kind, PhasePlan
from onerow.core.retry import Retry
from onerow.engine.control.definitions import LimitSetting
from onerow.engine.control.rates import Rates
from onerow.engine.control.stats import Outcomes, quantile
from onerow.engine.views.board import Lane
from onerow.engine.views.workers import WorkerLine

_SHOWN_DELAYS = 5


class PhaseLine(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of a published definition; counts, limits in force, pause and hold are in `lane`."""

    pipeline: str
    phase: str
    kind: Kind
    isolated: bool = False  # each attempt has a process of its own
    batch_size: int = 1
    signal: str = ""  # of a wait_for phase
    lane: Lane
    setting: LimitSetting | None = None  # what an operator set, with author and reason
    used: int  # running tasks, of `lane.limit`
    rate: str = ""  # in force
    rate_per_key: str = ""
    starts_left: int | None = None  # starts that the rate allows now; None without a rate
    next_start: datetime | None = None  # when the rate allows the next start; None if now
    timeout: timedelta | None = None
    lease: timedelta
    max_retries: int
    retry_delays: list[timedelta]  # before each of the first retries, without jitter
    retry: str  # the retry policy in words
    wait_p50: int | None = None  # ms
    wait_p95: int | None = None
    run_p50: int | None = None
    run_p95: int | None = None
    failure_share: float | None = None  # failed attempts, of all that ended; None without any
    workers: list[str] = []  # live workers that serve it


def phase_line(
    lane: Lane,
    phase: PhasePlan,
    setting: LimitSetting | None,
    outcomes: Outcomes,
    workers: Sequence[WorkerLine],
    rates: Rates,
    now: datetime,
) -> PhaseLine:
    """Return one phase, with the limits in force, and its performance."""
    attempts = outcomes.done + outcomes.failed + outcomes.retried
    left = rates.starts_left(lane.pipeline, phase, now)
    return PhaseLine(
        pipeline=lane.pipeline,
        phase=phase.name,
        kind=phase.kind,
        isolated=phase.isolated,
        batch_size=phase.batch_size,
        signal=phase.signal,
        lane=lane,
        setting=setting,
        used=lane.processing,
        rate=phase.rate,
        rate_per_key=phase.rate_per_key,
        starts_left=left,
        next_start=rates.free_at(lane.pipeline, phase, now) if left == 0 else None,
        timeout=phase.timeout,
        lease=phase.lease,
        max_retries=phase.retry.max_retries,
        retry_delays=phase.retry.delays(_SHOWN_DELAYS),
        retry=spell_retry(phase.retry),
        wait_p50=quantile(outcomes.wait, 0.5),
        wait_p95=quantile(outcomes.wait, 0.95),
        run_p50=quantile(outcomes.run, 0.5),
        run_p95=quantile(outcomes.run, 0.95),
        failure_share=(outcomes.failed + outcomes.retried) / attempts if attempts else None,
        workers=[
            worker.name
            for worker in workers
            if worker.alive and not worker.draining and (lane.pipeline, phase.name) in worker.phases
        ],
    )


def spell_retry(retry: Retry) -> str:
    """Return the retry policy in words: '3 retries, after 5s, 15s, 45s'."""
    if not retry.max_retries:
        return "no retry"
    delays = retry.delays(_SHOWN_DELAYS)
    more = ", …" if retry.max_retries > len(delays) else ""
    after = ", ".join(map(spell_duration, delays)) + more
    return f"1 retry, after {after}" if retry.max_retries == 1 else f"{retry.max_retries} retries, after {after}"
