"""The schedules of a queue: list, pause and resume them."""

from onerow.core import schedule
from onerow.core.errors import UnknownName
from onerow.core.schedule import Cron
from onerow.core.suggest import did_you_mean
from onerow.core.times import read
from onerow.engine.control import definitions
from onerow.engine.control.definitions import PAUSE
from onerow.engine.control.schedules import PROGRESS, Scheduled, pause_name, progress_name, read_progress
from onerow.engine.queue import operations
from onerow.engine.queue.schedules_async import CronsAsync
from onerow.engine.queue.scope import Scope, plan_of


class Crons(CronsAsync):
    """Lists, pauses and resumes schedules (`queue.crons`)."""

    def __init__(self, queue: Scope) -> None:
        self._queue = queue

    def all(self) -> list[Scheduled]:
        """Return every published schedule with its last and next time."""
        store = self._queue.store
        now = store.now()
        by_name = {note.name: read_progress(note.body) for note in store.notes(PROGRESS)}
        pauses = definitions.load_controls(store).pauses
        found = []
        plans = {name: p.plan for name, p in self._queue.pipelines.items()} | definitions.load_plans(store)
        for plan in plans.values():
            for cron in plan.crons:
                progress = by_name.get(progress_name(plan.name, cron))
                found.append(
                    Scheduled(
                        plan.name,
                        cron,
                        read(progress.last) if progress and progress.task_id else None,
                        progress.task_id if progress else "",
                        schedule.next_time(cron, now),
                        pauses.get((plan.name, f"cron:{cron.name}")),
                        progress.error if progress else "",
                    )
                )
        return found

    def pause(self, pipeline: str, name: str, *, by: str = "", reason: str = "") -> None:
        """Pause a schedule; times that pass during the pause are not caught up. name: the schedule's name."""
        phase = f"cron:{self._known(pipeline, name).name}"
        definitions.set_pause(self._queue.store, pipeline, phase, operations.asking(by), reason)

    def resume(self, pipeline: str, name: str) -> bool:
        """Remove a pause; return whether there was one. name: the schedule's name."""
        cron = self._known(pipeline, name)
        return self._queue.store.drop_notes(PAUSE, [pause_name(pipeline, cron.name)]) > 0

    def _known(self, pipeline: str, name: str) -> Cron:
        crons = plan_of(self._queue, pipeline).crons
        for cron in crons:
            if cron.name == name:
                return cron
        fix = did_you_mean(name, [cron.name for cron in crons])
        raise UnknownName(f"pipeline {pipeline!r} has no schedule {name!r}", fix=fix, field="cron")
