"""Count outcomes as they are settled, and write the counts every few seconds, separately from the settle."""

from datetime import datetime, timedelta
from time import monotonic

import msgspec

from onerow.core.rules.attempts import Crashed, Done, Outcome, Skipped, Unstarted
from onerow.core.status import CANCELLED, COMPLETED, FAILED
from onerow.core.task import Task
from onerow.engine.control import notes
from onerow.engine.control.stats import KEPT_FOR, STATS, Outcomes, bucket, minute_of, note_name
from onerow.engine.events.events import Events, TaskRescued
from onerow.ports import Note, Store

_FLUSH_EVERY = 5.0
_CLEAR_EVERY = 600.0
_MINUTE = timedelta(minutes=1)
_MOST_SHORT = 4096
_SHORT = tuple(bucket(millis) for millis in range(_MOST_SHORT))  # most durations; a lookup is faster than a call


class StatsRecorder:
    """Count outcomes per phase and minute; a crash loses at most the counts since the last flush."""

    def __init__(self, store: Store, worker: str, events: Events) -> None:
        self._store = store
        self._worker = worker
        self._fresh: dict[tuple[str, str], Outcomes] = {}
        self._minute = ""
        self.totals: dict[
            tuple[str, str], Outcomes
        ] = {}  # by phase, since the start of this worker, up to the last flush
        self._written: dict[tuple[str, str], tuple[Outcomes, int]] = {}  # this minute's counts and note versions
        self._clear_at = monotonic()
        events.on(TaskRescued, self._rescued)

    def count(self, before: Task, after: Task, outcome: Outcome) -> None:
        """Count a settled attempt; called for each one, so it only increments counters in a dictionary."""
        kind = type(outcome)
        if kind is Unstarted:
            return
        phase = (before.pipeline, before.phase)
        found = self._fresh.get(phase)
        if found is None:
            found = self._fresh[phase] = Outcomes(run={}, wait={})
        status = after.status
        if status is CANCELLED:
            found.cancelled += 1
        elif kind is Done or kind is Skipped:
            found.done += 1
            if status is COMPLETED and after.completed_at is not None:
                whole = bucket(int((after.completed_at - after.created_at).total_seconds() * 1000))
                found.whole[whole] = found.whole.get(whole, 0) + 1
        elif status is FAILED:
            found.failed += 1
            _count_error(found, f"failed/{after.error_class or ''}")
        elif after.retry_count != before.retry_count or kind is Crashed:
            found.retried += 1
            _count_error(found, f"retry/{after.error_class or ''}")
        else:
            found.put_off += 1
        ran = after.elapsed_time or 0
        run_bucket = _SHORT[ran] if ran < _MOST_SHORT else bucket(ran)
        run = found.run
        run[run_bucket] = run.get(run_bucket, 0) + 1
        if before.started_at is not None:
            delay = before.started_at - before.run_at
            waited = delay.seconds * 1000 + delay.microseconds // 1000
            if delay.days:
                waited = max(0, waited + delay.days * 86_400_000)
            wait_bucket = _SHORT[waited] if waited < _MOST_SHORT else bucket(waited)
            wait = found.wait
            wait[wait_bucket] = wait.get(wait_bucket, 0) + 1

    def _rescued(self, event: TaskRescued) -> None:
        phase = (event.task.pipeline, event.task.phase)
        self._fresh.setdefault(phase, Outcomes(run={}, wait={})).rescued += 1

    def tick(self, now: datetime) -> float:
        """Do one round; return the seconds until the next."""
        self.flush(now)
        if monotonic() >= self._clear_at:
            self._clear_at = monotonic() + _CLEAR_EVERY
            old = self._store.notes(STATS, before=minute_of(now - KEPT_FOR * _MINUTE))
            if old:
                self._store.drop_notes(STATS, [note.name for note in old])
        return _FLUSH_EVERY

    def flush(self, now: datetime) -> None:
        """Write the counts since the last flush."""
        minute = minute_of(now)
        if minute != self._minute:
            self._minute, self._written = minute, {}
        fresh, self._fresh = self._fresh, {}
        if not fresh:
            return
        phases = list(fresh)
        for phase in phases:
            so_far, version = self._written.get(phase, (Outcomes(run={}, wait={}), 0))
            so_far.add(fresh[phase])
            self.totals.setdefault(phase, Outcomes(run={}, wait={})).add(fresh[phase])
            self._written[phase] = (so_far, version)
        entries = [
            Note(
                STATS,
                note_name(minute, *phase, self._worker),
                msgspec.to_builtins(self._written[phase][0], str_keys=True),
                self._written[phase][1],
            )
            for phase in phases
        ]
        for phase, entry, done in zip(phases, entries, self._store.write_notes(entries), strict=True):
            # An earlier write may have succeeded although its answer was lost; the counts include it.
            version = entry.version + 1 if done else notes.put(self._store, entry).version
            self._written[phase] = (self._written[phase][0], version)


def _count_error(found: Outcomes, name: str) -> None:
    found.errors[name] = found.errors.get(name, 0) + 1
