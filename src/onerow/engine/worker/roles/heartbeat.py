"""Heartbeat extends leases and reads cancel requests; DeadlineWatcher enforces deadlines without the store."""

from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic

from onerow.core.filters import Filter
from onerow.core.status import PROCESSING
from onerow.engine.queue.heartbeat import beat
from onerow.engine.runners.attempt import Attempt, InFlight
from onerow.engine.runners.event_loop import BLOCKED, LoopWatch
from onerow.ports import Store

_LOOK_EVERY = 1.0
_GOES_ON = "it goes on after its cancellation"
_THREAD = 'its thread can\'t be stopped; isolate="process" gives it a process, which can be'


class Heartbeat:
    """Extend leases that are a third over, in one write per lease length, and read cancel requests each second."""

    def __init__(self, store: Store, worker: str, in_flight: InFlight, shortest: timedelta) -> None:
        self._store = store
        self._worker = worker
        self._in_flight = in_flight
        self._look_at = 0.0
        # The pause follows from the shortest lease: a task claimed during the pause needs its heartbeat in time.
        self._rest = min(_LOOK_EVERY, shortest.total_seconds() / 6)

    def tick(self, now: datetime) -> float:
        """Do one round; return the seconds until the next."""
        attempts = list(self._in_flight.attempts.values())
        if not attempts:
            return self._rest
        held = [attempt for attempt in attempts if attempt.stop != "lost"]
        beat(self._store, held, lambda attempt: self._in_flight.attempts.get(attempt.task.task_id) is attempt)
        if monotonic() >= self._look_at:
            self._look_at = monotonic() + _LOOK_EVERY
            self._read_cancels()
        return self._rest

    def _read_cancels(self) -> None:
        where = Filter(statuses=frozenset({PROCESSING}), leased_by=self._worker, cancel_requested=True)
        for task in self._store.find(where, limit=1000, order="oldest").tasks:
            attempt = self._in_flight.attempts.get(task.task_id)
            if attempt is not None and attempt.task.token == task.token:
                attempt.heard(task)
                attempt.ask_to_stop("cancel")


class DeadlineWatcher:
    """Stop attempts that exceed their timeout or may have lost their lease, and report those that do not stop."""

    def __init__(
        self,
        in_flight: InFlight,
        grace: float,
        hung: Callable[[Attempt, str], None],
        shortest: timedelta,
        loop: LoopWatch | None = None,
    ) -> None:
        self._in_flight = in_flight
        self._grace = grace
        self._hung = hung
        self._loop = loop
        # Short enough that an attempt started during the pause does not far exceed its timeout.
        self._rest = max(0.05, min(1.0, shortest.total_seconds() / 6))

    def tick(self, now: datetime) -> float:
        """Do one round; return the seconds until the next."""
        rest = self._rest
        clock = monotonic()
        blocked, blocker = (0.0, None) if self._loop is None else self._loop.look(clock)
        for attempt in list(self._in_flight.attempts.values()):
            served = attempt.served
            if attempt.ended_at:
                continue  # it has ended; its outcome waits to be written, perhaps for long during an outage
            blocks = blocker is not None and (blocker is attempt or blocker is attempt.handle)
            if blocked and not blocks and attempt.runner.on_loop:
                _excuse(attempt, blocked, clock)
            if attempt.stop is not None:
                if attempt.started_at is not None and clock - attempt.stop_at > self._grace + 1:
                    self._hung(attempt, BLOCKED if blocks else _GOES_ON if attempt.runner.on_loop else _THREAD)
                rest = min(rest, 0.2)
                continue
            # Another worker may rescue the task soon: stop, so that it does not run twice at the same time.
            if clock > attempt.safe_until:
                attempt.ask_to_stop("lost")
                continue
            rest = min(rest, attempt.safe_until - clock)
            if served.timeout is not None and attempt.started_at is not None:
                ends_at = attempt.started_at + served.timeout + attempt.excused
                # Only if the loop has run since the deadline: otherwise another attempt may have blocked this one.
                if ends_at <= clock and (blocks or self._was_free_after(ends_at, attempt)):
                    attempt.ask_to_stop("timeout")
                rest = min(rest, max(0.0, ends_at - clock))
            elif served.timeout is not None:
                rest = min(rest, served.timeout / 2)
        return max(rest, 0.01)

    def _was_free_after(self, moment: float, attempt: Attempt) -> bool:
        return self._loop is None or not attempt.runner.on_loop or self._loop.free_at > moment


def _excuse(attempt: Attempt, blocked: float, clock: float) -> None:
    """Extend an attempt's deadlines by the time in which another attempt blocked the event loop."""
    if attempt.started_at is not None:
        attempt.excused += max(0.0, min(blocked, clock - attempt.started_at))
    if attempt.stop is not None:
        attempt.stop_at = min(clock, attempt.stop_at + blocked)
