"""Decides how many worker processes of this host the work needs, from what the workers read and report."""

from collections.abc import Sequence

from onerow.core.scaling import Decision, PhaseSignal, ScaleSettings, ScaleState, Signal, WorkerSignal, decide
from onerow.engine.worker.worker_process import WorkerProcess

_DECIDE_EVERY = 2.0  # seconds; workers report that often


class PoolScaler:
    """Keeps the state between decisions. Times are in the supervisor's clock."""

    def __init__(self, settings: ScaleSettings) -> None:
        self._settings = settings
        self._state = ScaleState()
        self._decide_at = 0.0

    def tick(self, workers: Sequence[WorkerProcess], now: float) -> Decision | None:
        """Return a decision to scale out or in; None if it is not time for one or the number stays."""
        if now < self._decide_at:
            return None
        self._decide_at = now + _DECIDE_EVERY
        reported = [worker.need for worker in workers if worker.need is not None and worker.counts]
        if not reported:
            return None  # no worker has read the store yet
        # Each reads the same store, some later than others: the largest need is not missed.
        need = max(reported, key=lambda need: (need.to_start + need.running, need.upkeep))
        wanted = [worker for worker in workers if worker.counts]
        signal = Signal(
            at=now,
            # Limits are already taken into account.
            phases=(PhaseSignal(pipeline="*", phase="*", ready=need.to_start, running=need.running),),
            workers=tuple(WorkerSignal("", self._settings.slots, worker.running) for worker in wanted),
            current=len(wanted),
            upkeep=need.upkeep,
        )
        decision = decide(signal, self._settings, self._state)
        self._state = decision.state
        return None if decision.workers == len(wanted) else decision
