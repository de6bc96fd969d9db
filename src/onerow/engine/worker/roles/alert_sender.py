"""Send alerts: for failures in this worker, and, once for all workers, for phases whose tasks wait too long."""

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from time import monotonic

from onerow.core.durations import spell_duration
from onerow.core.failure import classify, text_of
from onerow.core.times import spell
from onerow.engine.control import notes
from onerow.engine.control.alerts import Alert, AlertRule, Undelivered, of_failure
from onerow.engine.events.events import AlertLost, Events, TaskFailed
from onerow.engine.events.hooks import Guard
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Lane, Views
from onerow.ports import Note

ALERT = "alert"
_LOOK_EVERY = 15.0
_MOST_AT_ONCE = 50
_MOST_KEPT = 1000
_TRIES = 5
_SEND_LIMIT = 30.0  # seconds after which a receiver that has not answered is reported


class AlertSender:
    """Send the alerts of one rule, in its own thread, so that a slow receiver delays nothing else."""

    def __init__(self, queue: Queue, watch: AlertRule, events: Events) -> None:
        self._queue = queue
        self._store = queue.store
        self._rule = watch
        self._events = events
        self._failures: deque[TaskFailed] = deque()
        self.guard = Guard(f"{watch.name} (alerts)", _SEND_LIMIT)
        self._unsent: list[Alert] = []
        self._tries = 0
        self._look_at = 0.0
        if watch.failures:
            events.on(TaskFailed, self._on_failure)

    def close(self, now: datetime) -> None:
        """Stop listening for failures and try once to send the remaining alerts."""
        if self._rule.failures:
            self._events.off(TaskFailed, self._on_failure)
        self._look_at = float("inf")
        while self._failures or self._unsent:
            self._tries = _TRIES  # there is no time for a retry
            self.tick(now)

    @property
    def unsent(self) -> int:
        """The number of alerts that the receiver has not accepted."""
        return len(self._unsent) + len(self._failures)

    def _on_failure(self, event: TaskFailed) -> None:
        if len(self._failures) >= _MOST_KEPT:
            self.guard.dropped += 1
        else:
            self._failures.append(event)

    def tick(self, now: datetime) -> float:
        """Do one round; return the seconds until the next."""
        if monotonic() >= self._look_at and (self._rule.unserved_for or self._rule.overdue_for):
            self._look_at = monotonic() + _LOOK_EVERY
            self._unsent += [alert for alert in self._stalled_phases(now) if self._reserve(alert, now)]
        while self._failures and len(self._unsent) < _MOST_AT_ONCE:
            self._unsent.append(of_failure(self._failures.popleft().task, spell(now), self._queue.masker))
        if not self._unsent:
            return 1.0
        try:
            with self.guard:
                self._rule.send(self._unsent)
        except Exception as error:
            return self._retry_after(error)
        self._unsent, self._tries = [], 0
        return 1.0

    def _retry_after(self, error: Exception) -> float:
        """Return the seconds until the next try; after the last one, report the alerts as lost."""
        self._tries += 1
        if self._tries < _TRIES:
            return float(2**self._tries)
        why = text_of(error) if isinstance(error, Undelivered) else classify(error).message
        self._events.send(AlertLost(len(self._unsent), why))
        self._unsent, self._tries = [], 0
        return 1.0

    def _stalled_phases(self, now: datetime) -> Iterator[Alert]:
        """Yield an alert for each phase whose oldest due task waits too long."""
        for board in Views(self._queue).board().pipelines:
            for lane in board.lanes:
                if lane.oldest is None or lane.oldest > now or lane.paused is not None or lane.held_until is not None:
                    continue
                age = now - lane.oldest
                unserved, overdue = self._rule.unserved_for, self._rule.overdue_for
                if unserved is not None and lane.workers == 0 and age >= unserved:
                    yield _alert("unserved", lane, now, f"no worker serves it, and {_waiting_text(lane, age)}")
                elif overdue is not None and age >= overdue:
                    yield _alert("overdue", lane, now, _waiting_text(lane, age))

    def _reserve(self, alert: Alert, now: datetime) -> bool:
        """Whether no worker has sent this alert recently and this worker has reserved it."""
        note = notes.find(self._store, ALERT, alert.key)
        if note is not None and note.updated_at is not None and now - note.updated_at < self._rule.again_after:
            return False
        return notes.swap(self._store, Note(ALERT, alert.key, {"text": alert.text}, note.version if note else 0))


def _waiting_text(lane: Lane, age: timedelta) -> str:
    return f"{lane.waiting} waiting, the first due for {spell_duration(timedelta(seconds=int(age.total_seconds())))}"


def _alert(kind: str, lane: Lane, now: datetime, what: str) -> Alert:
    return Alert(
        kind="unserved" if kind == "unserved" else "overdue",
        text=f"{lane.pipeline}/{lane.phase}: {what}",
        at=spell(now),
        pipeline=lane.pipeline,
        phase=lane.phase,
        waiting=lane.waiting,
    )


class HookWatch:
    """Check each second whether a hook or an alert receiver exceeds its time limit."""

    def __init__(self, report: Callable[[], object]) -> None:
        self._report = report

    def tick(self, now: datetime) -> float:
        """Do one round; return the seconds until the next."""
        self._report()
        return 1.0
