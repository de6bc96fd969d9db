"""Bulk operations: apply one operation to all matching tasks, page by page, at a limited rate, and record who asked."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from onerow.core.corruption import applied
from onerow.core.errors import BadInput, CorruptRow, IllegalMove, KeyTaken, LostRace, UnknownName
from onerow.core.rates import parse_rate
from onerow.core.retry import Retry
from onerow.core.task import Task
from onerow.core.times import spell
from onerow.engine.control import notes
from onerow.engine.queue import operations
from onerow.engine.queue.compare_and_swap import act as act_on_one
from onerow.engine.queue.operations import Act
from onerow.engine.queue.scope import Scope
from onerow.ports import Conflict, Filter, Move, Note, Swapped

BULK = "bulk"
_PAGE = 200
_PROBLEMS = 20
_RECORDS = 100
_REPORT_EVERY = 1.0


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Progress of a bulk operation; also stored as its record."""

    act: str
    by: str
    matched: int  # at the start
    done: int = 0
    refused: int = 0  # not allowed by status, unique key or plan, or changed by others too often
    problems: tuple[tuple[str, str], ...] = ()  # the first 20: (task id, reason)
    started_at: str = ""
    ended_at: str = ""
    whole: bool = False  # whether every matching task was processed


Report = Callable[[Progress], None]


class Selection:
    """The tasks that match a filter. Tasks added after an operation started are not part of it.

    Every operation takes `pace` ('20/min'), `limit` (maximum number of tasks), `progress` (called about once a second),
    `by` and `note`.
    """

    def __init__(self, queue: Scope, where: Filter) -> None:
        self._queue = queue
        self._where = where
        self._sleep: Callable[[float], None] = time.sleep

    def __len__(self) -> int:
        return self.count

    @property
    def count(self) -> int:
        """Number of matching tasks now."""
        return sum(line.count for line in self._queue.count(self._where))

    def __iter__(self) -> Iterator[Task]:
        """Iterate over all matching tasks, newest first, one page at a time."""
        after: str | None = None
        while True:
            page = self._queue.find(self._where, limit=_PAGE, after=after)
            yield from page.tasks
            if (after := page.next) is None:
                return

    def cancel(self, *, by: str = "", note: str = "", **how: Any) -> Progress:
        """Cancel the tasks and their children; running attempts are stopped."""
        return self._run(operations.cancel(by, note), **how)

    def retry(self, *, policy: Retry | None = None, by: str = "", note: str = "", **how: Any) -> Progress:
        """Retry failed tasks from their current phase, with a new retry budget; see `Queue.retry` for `policy`."""
        return self._run(operations.retry(self._queue.plan, by, note, policy), **how)

    def replay(self, phase: str | None = None, *, by: str = "", note: str = "", **how: Any) -> Progress:
        """Run completed and failed tasks again from an earlier phase."""
        return self._run(operations.replay(self._queue.plan, phase, by, note), **how)

    def finish(self, *, phase_only: bool = False, by: str = "", note: str = "", **how: Any) -> Progress:
        """Mark waiting and failed tasks (or only their current phase) as done manually."""
        return self._run(operations.finish(self._queue.plan, phase_only, by, note), **how)

    def reschedule(self, run_at: datetime | str, *, by: str = "", note: str = "", **how: Any) -> Progress:
        """Change when waiting tasks are due."""
        return self._run(operations.reschedule(run_at, by, note), **how)

    def set_priority(self, priority: int, *, by: str = "", note: str = "", **how: Any) -> Progress:
        """Change the priority of tasks that have not ended."""
        return self._run(operations.prioritise(priority, by, note), **how)

    def signal(self, name: str, payload: Any = None, *, by: str = "", **how: Any) -> Progress:
        """Send a signal to each task."""
        return self._run(operations.signal(name, payload, "", by), **how)

    def annotate(self, metadata: dict[str, Any], **how: Any) -> Progress:
        """Replace their metadata."""
        return self._run(operations.annotate(metadata), **how)

    def _run(
        self, act: Act, *, pace: str | None = None, limit: int | None = None, progress: Report | None = None
    ) -> Progress:
        if limit is not None and (type(limit) is not int or limit < 1):
            raise BadInput(f"limit must be a whole number from 1 on, not {limit!r}", field="limit")
        step = 0.0 if pace is None else (rate := parse_rate(pace, "pace")).per / rate.count / 1000
        return _Run(self._queue, self._where, act, step, limit, progress, self._sleep).whole()


class _Run:
    """One bulk operation in progress."""

    def __init__(
        self,
        queue: Scope,
        where: Filter,
        act: Act,
        step: float,
        limit: int | None,
        report_to: Report | None,
        sleep: Callable[[float], None],
    ) -> None:
        self._queue, self._act, self._step, self._sleep = queue, act, step, sleep
        self._store = queue.store
        now = self._store.now()
        # Excludes tasks added from now on: an operation whose effects add tasks would never end.
        self._where = replace(
            where, created_before=now if where.created_before is None else min(now, where.created_before)
        )
        self._left = limit
        self._report_to = report_to
        self._reported_at = time.monotonic()
        self._record = Note(BULK, f"{spell(now)}-{uuid4().hex[:8]}", None)
        matched = sum(line.count for line in queue.count(self._where))
        self._progress = Progress(act.name, act.by, matched, started_at=spell(now))

    def whole(self) -> Progress:
        """Process all matching tasks; the stored record shows the progress even after an interruption."""
        whole = False
        self._save_record()
        try:
            whole = all(self._process_page(tasks) for tasks in self._pages())
            whole = whole and (
                self._left is None or self._progress.done + self._progress.refused >= self._progress.matched
            )
        finally:
            self._progress = replace(self._progress, ended_at=spell(self._store.now()), whole=whole)
            self._save_record()
            self._drop_old_records()
        if self._report_to is not None:
            self._report_to(self._progress)
        return self._progress

    def _pages(self) -> Iterator[list[Task]]:
        after: str | None = None
        while True:
            page = self._queue.find(self._where, limit=_PAGE, order="oldest", after=after)
            yield page.tasks
            if (after := page.next) is None:
                return

    def _process_page(self, tasks: list[Task]) -> bool:
        """Process one page; return False once the limit is reached."""
        size = 1 if self._step else _PAGE
        for start in range(0, len(tasks), size):
            if self._left is not None and self._left <= 0:
                return False
            chunk = tasks[start : start + min(size, self._left or size)]
            if self._step and self._progress.done:
                self._sleep(self._step)
            self._apply(chunk)
            self._report()
        return True

    def _apply(self, tasks: list[Task]) -> None:
        now = self._store.now()
        moves: list[Move] = []
        for task in tasks:
            try:
                after = applied(lambda task: self._act.rule(task, now), task, now)
            except (IllegalMove, UnknownName, BadInput) as error:
                self._count_refused(task.task_id, str(error))
            else:
                if after is task:
                    self._count_done(task)  # the task already was in the requested state
                else:
                    moves.append(Move(task, after))
        for move, answer in zip(moves, self._store.swap(moves) if moves else [], strict=True):
            match answer:
                case Swapped(task=task) if task.error_class == "corrupt" != move.before.error_class:
                    self._count_refused(task.task_id, task.error or "")
                case Swapped(task=task):
                    self._count_done(task)
                case Conflict(other_id=other):
                    self._count_refused(move.before.task_id, f"its unique key is held by task {other}")
                case _:
                    self._apply_singly(move.before.task_id)

    def _apply_singly(self, task_id: str) -> None:
        """Read the task again and retry, because it was written concurrently."""
        try:
            self._count_done(act_on_one(self._store, task_id, lambda task: self._act.rule(task, self._store.now())))
        except (IllegalMove, UnknownName, BadInput, KeyTaken, LostRace, CorruptRow) as error:
            self._count_refused(task_id, str(error))

    def _count_done(self, task: Task) -> None:
        self._queue.acted(self._act, task)
        self._count(done=self._progress.done + 1)

    def _count_refused(self, task_id: str, why: str) -> None:
        problems = (*self._progress.problems, (task_id, why))[:_PROBLEMS]
        self._count(refused=self._progress.refused + 1, problems=problems)

    def _count(self, **changes: Any) -> None:
        self._progress = replace(self._progress, **changes)
        if self._left is not None:
            self._left -= 1

    def _report(self) -> None:
        if time.monotonic() - self._reported_at >= _REPORT_EVERY or self._step >= _REPORT_EVERY:
            self._reported_at = time.monotonic()
            self._save_record()
            if self._report_to is not None:
                self._report_to(self._progress)

    def _save_record(self) -> None:
        self._record = notes.put(self._store, replace(self._record, body=msgspec.to_builtins(self._progress)))

    def _drop_old_records(self) -> None:
        """Delete all but the latest records; their names sort by time."""
        old = [note.name for note in self._store.notes(BULK)][:-_RECORDS]
        if old:
            self._store.drop_notes(BULK, old)


def records(queue: Scope) -> list[Progress]:
    """Records of recent bulk operations, latest first."""
    return [msgspec.convert(note.body, Progress) for note in reversed(queue.store.notes(BULK))]
