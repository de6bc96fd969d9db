"""The scheduler adds the tasks of cron schedules: one per nominal time, with any number of workers and restarts."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from time import monotonic
from uuid import NAMESPACE_OID, uuid5

from onerow.core import schedule
from onerow.core.plan import Plan
from onerow.core.schedule import Cron
from onerow.core.times import read, spell
from onerow.engine.control import definitions
from onerow.engine.control.schedules import MARK, Mark, fresh_mark, mark_name, pause_name, read_mark, written
from onerow.engine.queue.queue import Queue
from onerow.ports import Note

_LOOK_EVERY = 15.0
_GIVEN_UP_AFTER = timedelta(seconds=10)


class Scheduler:
    """Add the tasks of due schedules. A cursor per schedule (`Mark`) holds the last time that was handled.

    The worker that writes the cursor as 'firing' adds the task and then advances the cursor. The task's id follows from
    the nominal time, so that a worker that takes over from a dead one does not add it twice.
    """

    def __init__(self, queue: Queue, plans: Mapping[str, Plan]) -> None:
        self._queue = queue
        self._store = queue.store
        self._plans = plans
        self._look_at = 0.0
        self._next: datetime | None = None

    def tick(self, now: datetime) -> float:
        """Do one round; return the seconds until the next."""
        if not self._crons:
            return _LOOK_EVERY
        if monotonic() >= self._look_at or self._next is None or now >= self._next:
            self._look(now)
        assert self._next is not None
        return max(0.0, min(self._look_at - monotonic(), (self._next - now).total_seconds()))

    @property
    def _crons(self) -> list[tuple[str, Cron]]:
        return [(plan.name, cron) for plan in self._plans.values() for cron in plan.crons]

    def _look(self, now: datetime) -> None:
        notes = {note.name: note for note in self._store.notes(MARK)}
        paused = {note.name for note in self._store.notes(definitions.PAUSE)}
        for pipeline, cron in self._crons:
            note = notes.get(mark_name(pipeline, cron))
            if note is None:
                written(self._store, mark_name(pipeline, cron), fresh_mark(now), 0)
            else:
                self._keep(pipeline, cron, note, now, paused=pause_name(pipeline, cron.name) in paused)
        self._next = min(schedule.next_time(cron, now) for _, cron in self._crons)
        self._look_at = monotonic() + _LOOK_EVERY

    def _keep(self, pipeline: str, cron: Cron, note: Note, now: datetime, *, paused: bool) -> None:
        mark, version = read_mark(note.body), note.version
        last = read(mark.last)
        if mark.firing:
            if note.updated_at is not None and now - note.updated_at < _GIVEN_UP_AFTER:
                return  # another worker is adding it
            mark = self._add(pipeline, cron, read(mark.firing))
            if not written(self._store, note.name, mark, version):
                return
            version, last = version + 1, read(mark.last)
        latest = schedule.latest_time(cron, now)
        if latest is None or latest <= last:
            return
        wanted = [] if paused else schedule.due(cron, last, now)
        for nominal in wanted:
            if cron.overlap == "skip" and self._is_running(mark):
                continue
            if not written(self._store, note.name, Mark(mark.last, mark.task_id, spell(nominal)), version):
                return
            mark = self._add(pipeline, cron, nominal)
            if not written(self._store, note.name, mark, version + 1):
                return
            version += 2
        # Skipped times count as handled. After very many missed times, the rest is left for the next round.
        decided = wanted[-1] if len(wanted) == schedule.MOST_AT_ONCE else latest
        if read(mark.last) < decided:
            written(self._store, note.name, Mark(spell(decided), mark.task_id), version)

    def _add(self, pipeline: str, cron: Cron, nominal: datetime) -> Mark:
        text = spell(nominal)
        task_id = str(uuid5(NAMESPACE_OID, f"cron\n{pipeline}\n{cron.name}\n{text}"))
        self._queue.add(
            pipeline,
            cron.payload,
            task_id=task_id,
            run_at=nominal,
            user_id=cron.user_id,
            metadata={"cron": cron.name, "nominal": text},
        )
        return Mark(text, task_id)

    def _is_running(self, mark: Mark) -> bool:
        return bool(mark.task_id) and any(not task.ended for task in self._store.fetch([mark.task_id]))
