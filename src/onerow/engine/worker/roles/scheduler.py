"""The scheduler adds the tasks of cron schedules: one per nominal time, with any number of workers and restarts."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from time import monotonic
from uuid import NAMESPACE_OID, uuid5

from msgspec.structs import replace

from onerow.core import schedule
from onerow.core.errors import RowRefused, StoreError
from onerow.core.failure import text_of
from onerow.core.plan import Plan
from onerow.core.schedule import Cron
from onerow.core.times import read, spell
from onerow.engine.control import definitions
from onerow.engine.control.schedules import (
    PROGRESS,
    Progress,
    new_progress,
    pause_name,
    progress_name,
    read_progress,
    written,
)
from onerow.engine.events.events import ScheduleFailed
from onerow.engine.queue.queue import Queue
from onerow.ports import Note

_LOOK_EVERY = 15.0
_GIVEN_UP_AFTER = timedelta(seconds=10)


class Scheduler:
    """Add the tasks of due schedules. A cursor per schedule (`Progress`) holds the last time that was handled.

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
        notes = {note.name: note for note in self._store.notes(PROGRESS)}
        paused = {note.name for note in self._store.notes(definitions.PAUSE)}
        for pipeline, cron in self._crons:
            note = notes.get(progress_name(pipeline, cron))
            if note is None:
                written(self._store, progress_name(pipeline, cron), new_progress(now), 0)
            else:
                try:
                    self._keep(pipeline, cron, note, now, paused=pause_name(pipeline, cron.name) in paused)
                except Exception as error:
                    if not _is_its_own(error):
                        raise
                    self._queue.events.send(ScheduleFailed(pipeline, cron.name, text_of(error)))
        self._next = min(schedule.next_time(cron, now) for _, cron in self._crons)
        self._look_at = monotonic() + _LOOK_EVERY

    def _keep(self, pipeline: str, cron: Cron, note: Note, now: datetime, *, paused: bool) -> None:
        progress, version = read_progress(note.body), note.version
        last = read(progress.last)
        if progress.firing:
            if note.updated_at is not None and now - note.updated_at < _GIVEN_UP_AFTER:
                return  # another worker is adding it
            progress = self._add(pipeline, cron, read(progress.firing), progress)
            if not written(self._store, note.name, progress, version) or progress.error:
                return
            version, last = version + 1, read(progress.last)
        latest = schedule.latest_time(cron, now)
        if latest is None or latest <= last:
            return
        wanted = [] if paused else schedule.due(cron, last, now)
        for nominal in wanted:
            if cron.overlap == "skip" and self._is_running(progress):
                continue
            if not written(self._store, note.name, replace(progress, firing=spell(nominal)), version):
                return
            progress = self._add(pipeline, cron, nominal, progress)
            if not written(self._store, note.name, progress, version + 1) or progress.error:
                return
            version += 2
        # Skipped times count as handled. After very many missed times, the rest is left for the next round.
        decided = wanted[-1] if len(wanted) == schedule.MOST_AT_ONCE else latest
        if read(progress.last) < decided:
            written(self._store, note.name, replace(progress, last=spell(decided)), version)

    def _add(self, pipeline: str, cron: Cron, nominal: datetime, progress: Progress) -> Progress:
        """Add the task of a nominal time; if that fails, the time is tried again at the next look."""
        text = spell(nominal)
        task_id = str(uuid5(NAMESPACE_OID, f"cron\n{pipeline}\n{cron.name}\n{text}"))
        try:
            self._queue.add(
                pipeline,
                cron.payload,
                task_id=task_id,
                run_at=nominal,
                user_id=cron.user_id,
                metadata={"cron": cron.name, "nominal": text},
            )
        except Exception as error:
            if not _is_its_own(error):
                raise
            if (said := self._queue.masker.text(text_of(error))) != progress.error:
                self._queue.events.send(ScheduleFailed(pipeline, cron.name, said))
            return replace(progress, firing="", error=said)
        return Progress(text, task_id)

    def _is_running(self, progress: Progress) -> bool:
        return bool(progress.task_id) and any(not task.ended for task in self._store.fetch([progress.task_id]))


def _is_its_own(error: Exception) -> bool:
    """Whether an error concerns one schedule, for example a payload that the code does not take any more."""
    return not isinstance(error, StoreError) or isinstance(error, RowRefused)
