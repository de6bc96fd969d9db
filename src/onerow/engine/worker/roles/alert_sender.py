"""The alarm sends alerts: of failures as they happen here, of phases that stand still, once for all workers."""

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from time import monotonic

from onerow.core.durations import spell_duration
from onerow.core.failure import classify, text_of
from onerow.core.times import spell
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
    """Serves one watch, from a thread of its own: a slow receiver holds up nobody."""

    def __init__(self, queue: Queue, watch: AlertRule, events: Events) -> None:
        self._queue = queue
        self._store = queue.store
        self._watch = watch
        self._events = events
        self._failures: deque[TaskFailed] = deque()
        self.guard = Guard(f"{watch.name} (alerts)", _SEND_LIMIT)
        self._unsent: list[Alert] = []
        self._tries = 0
        self._look_at = 0.0
        if watch.failures:
            events.on(TaskFailed, self._hear)

    def close(self, now: datetime) -> None:
        """Send what is left, once, and hear no more."""
        if self._watch.failures:
            self._events.off(TaskFailed, self._hear)
        self._look_at = float("inf")
        while self._failures or self._unsent:
            self._tries = _TRIES  # there is no time for another try
            self.tick(now)

    @property
    def unsent(self) -> int:
        """Alerts that the receiver has not taken."""
        return len(self._unsent) + len(self._failures)

    def _hear(self, event: TaskFailed) -> None:
        if len(self._failures) >= _MOST_KEPT:
            self.guard.dropped += 1
        else:
            self._failures.append(event)

    def tick(self, now: datetime) -> float:
        """One round; seconds to rest."""
        if monotonic() >= self._look_at and (self._watch.unserved_for or self._watch.overdue_for):
            self._look_at = monotonic() + _LOOK_EVERY
            self._unsent += [alert for alert in self._standing(now) if self._mine_to_tell(alert, now)]
        while self._failures and len(self._unsent) < _MOST_AT_ONCE:
            self._unsent.append(of_failure(self._failures.popleft().task, spell(now), self._queue.masker))
        if not self._unsent:
            return 1.0
        try:
            with self.guard:
                self._watch.send(self._unsent)
        except Exception as error:
            return self._again(error)
        self._unsent, self._tries = [], 0
        return 1.0

    def _again(self, error: Exception) -> float:
        """Seconds until the next try; after some the alerts are given up, and that is told."""
        self._tries += 1
        if self._tries < _TRIES:
            return float(2**self._tries)
        why = text_of(error) if isinstance(error, Undelivered) else classify(error).message
        self._events.send(AlertLost(len(self._unsent), why))
        self._unsent, self._tries = [], 0
        return 1.0

    def _standing(self, now: datetime) -> Iterator[Alert]:
        """What waits too long, by phase."""
        for board in Views(self._queue).board().pipelines:
            for lane in board.lanes:
                if lane.oldest is None or lane.oldest > now or lane.paused is not None or lane.held_until is not None:
                    continue
                age = now - lane.oldest
                unserved, overdue = self._watch.unserved_for, self._watch.overdue_for
                if unserved is not None and lane.workers == 0 and age >= unserved:
                    yield _alert("unserved", lane, now, f"no worker serves it, and {_told(lane, age)}")
                elif overdue is not None and age >= overdue:
                    yield _alert("overdue", lane, now, _told(lane, age))

    def _mine_to_tell(self, alert: Alert, now: datetime) -> bool:
        """Whether nobody has told of it lately, and it is we who do now."""
        note = next((note for note in self._store.notes(ALERT) if note.name == alert.key), None)
        if note is not None and note.updated_at is not None and now - note.updated_at < self._watch.again_after:
            return False
        return self._store.write_notes([Note(ALERT, alert.key, {"text": alert.text}, note.version if note else 0)])[0]


def _told(lane: Lane, age: timedelta) -> str:
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
    """Looks each second whether a hook or a receiver of alerts exceeds its time limit."""

    def __init__(self, report: Callable[[], object]) -> None:
        self._report = report

    def tick(self, now: datetime) -> float:
        """One round; seconds to rest."""
        self._report()
        return 1.0
