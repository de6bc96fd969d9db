"""Bulk operations: apply one operation to all matching tasks, page by page, at a limited rate, and record who asked."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Unpack
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from onerow.core import values
from onerow.core.errors import BadInput, CorruptRow, IllegalMove, KeyTaken, LostRace, OnerowError, UnknownName, with_fix
from onerow.core.filters import Filter
from onerow.core.keywords import check_keywords
from onerow.core.rates import parse_rate
from onerow.core.retry import Retry
from onerow.core.task import Task
from onerow.core.times import read, spell
from onerow.engine.control import notes
from onerow.engine.queue import operations
from onerow.engine.queue.bulk_async import SelectionAsync
from onerow.engine.queue.compare_and_swap import apply, check_readable, find_tasks, operate, pages
from onerow.engine.queue.operations import Operation
from onerow.engine.queue.progress import BulkOptions, EachTask, Progress, Report
from onerow.engine.queue.scope import Scope, after_operation, filter_of, plan_of
from onerow.pipelines.typed import Result, Signal
from onerow.ports import Note, Store

BULK = "bulk"
STOP = "bulk-stop"
_PAGE = 200
_PROBLEMS = 20
_RECORDS = 100
_REPORT_EVERY = 1.0
_STOP_WITHIN = 5.0
"""Seconds between two looks for a request to stop, while an operation waits for its pace."""
_INTERRUPTED_AFTER = timedelta(minutes=1)


class Selection(SelectionAsync):
    """The tasks that match a filter, or tasks with given ids. Tasks added after an operation started are not part of it.

    Every operation takes `by`, `note` and the `BulkOptions`: pace, limit, progress, each.
    """

    def __init__(self, scope: Scope, where: Filter, ids: Sequence[str] | None = None) -> None:
        self._scope = scope
        self._where = where
        self._ids = None if ids is None else list(dict.fromkeys(ids))
        self._sleep: Callable[[float], None] = time.sleep

    def __len__(self) -> int:
        return self.count

    @property
    def count(self) -> int:
        """Number of matching tasks now."""
        if self._ids is not None:
            return len(self._ids)
        return sum(line.count for line in self._scope.count(self._where))

    def __iter__(self) -> Iterator[Task]:
        """Iterate over all matching tasks, newest first, one page at a time."""
        if self._ids is not None:
            return iter(find_tasks(self._scope.store, self._ids, self._scope.user_id))
        return (task for tasks in pages(self._scope, self._where, "newest", _PAGE) for task in tasks)

    def cancel(self, *, by: str = "", note: str = "", **options: Unpack[BulkOptions]) -> Progress:
        """Cancel the tasks and their children; running attempts are stopped."""
        return self._run(operations.cancel(by, note), options)

    def fail(
        self,
        error: str,
        *,
        error_class: str = "permanent",
        by: str = "",
        note: str = "",
        **options: Unpack[BulkOptions],
    ) -> Progress:
        """Fail waiting tasks manually; `retry` undoes it."""
        text = self._scope.masker.text(values.check_text(error, "error", 100_000))
        return self._run(operations.fail(text, error_class, by, note), options)

    def retry(
        self, *, policy: Retry | None = None, by: str = "", note: str = "", **options: Unpack[BulkOptions]
    ) -> Progress:
        """Retry failed tasks from their current phase, with a new retry budget."""
        return self._run(operations.retry(partial(plan_of, self._scope), by, note, policy), options)

    def replay(
        self, phase: str | None = None, *, by: str = "", note: str = "", **options: Unpack[BulkOptions]
    ) -> Progress:
        """Run completed and failed tasks again from an earlier phase."""
        return self._run(operations.replay(partial(plan_of, self._scope), phase, by, note), options)

    def finish(
        self,
        *,
        result: Any = None,
        phase_only: bool = False,
        by: str = "",
        note: str = "",
        **options: Unpack[BulkOptions],
    ) -> Progress:
        """Mark waiting and failed tasks as done manually. phase_only: only their current phase."""
        return self._run(operations.finish(partial(plan_of, self._scope), phase_only, by, note, result), options)

    def reschedule(
        self, run_at: datetime | str, *, by: str = "", note: str = "", **options: Unpack[BulkOptions]
    ) -> Progress:
        """Change when waiting tasks are due."""
        return self._run(operations.reschedule(run_at, self._scope.store.now(), by, note), options)

    def set_priority(self, priority: int, *, by: str = "", note: str = "", **options: Unpack[BulkOptions]) -> Progress:
        """Change the priority of tasks that have not ended."""
        return self._run(operations.set_priority(priority, by, note), options)

    def signal(
        self,
        name: str | Signal[Result],
        payload: Result | None = None,
        *,
        signal_id: str = "",
        by: str = "",
        **options: Unpack[BulkOptions],
    ) -> Progress:
        """Send a signal to each task. name: the name of the signal, or what `wait_for` returned. payload: its value."""
        return self._run(operations.signal(name, payload, signal_id, by), options)

    def annotate(self, metadata: dict[str, Any], **options: Unpack[BulkOptions]) -> Progress:
        """Replace their metadata."""
        return self._run(operations.annotate(metadata), options)

    def _run(self, operation: Operation, options: BulkOptions) -> Progress:
        check_keywords(operation.name, options, BulkOptions)
        pace, limit = options.get("pace"), options.get("limit")
        report, each = options.get("progress"), options.get("each", lambda task, error: None)
        if limit is not None and (type(limit) is not int or limit < 1):
            raise BadInput(f"limit must be a whole number from 1 on, not {limit!r}", field="limit")
        step = 0.0 if pace is None else (rate := parse_rate(pace, "pace")).per / rate.count / 1000
        now = self._scope.store.now()
        record = Note(BULK, f"{spell(now)}-{uuid4().hex[:8]}", None)
        if self._ids is not None:
            tasks: Iterable[Sequence[Task]] = [list(self)]
            matched = len(self._ids)
        else:
            # Excludes tasks added from now on: an operation whose effects add tasks would never end.
            before = now if self._where.created_before is None else min(now, self._where.created_before)
            where = replace(self._where, created_before=before)
            matched = sum(line.count for line in self._scope.count(where))
            tasks = pages(self._scope, where, "oldest", _PAGE)
        # An operation on given tasks without a pace ends before someone could look at it.
        recorded = self._ids is None or bool(step)
        begun = Progress(
            operation.name, operation.by, matched, started_at=spell(now), name=record.name if recorded else ""
        )
        return _Run(
            self._scope, operation, begun, record if recorded else None, step, limit, report, each, self._sleep
        ).whole(tasks)


class _Run:
    """One bulk operation in progress."""

    def __init__(
        self,
        scope: Scope,
        operation: Operation,
        begun: Progress,
        record: Note | None,
        step: float,
        limit: int | None,
        report_to: Report | None,
        each: EachTask,
        sleep: Callable[[float], None],
    ) -> None:
        self._scope, self._operation, self._step, self._sleep = scope, operation, step, sleep
        self._store = scope.store
        self._left = limit
        self._report_to = report_to
        self._each = each
        self._reported_at = time.monotonic()
        self._record = record
        self._progress = begun

    def whole(self, tasks: Iterable[Sequence[Task]]) -> Progress:
        """Process all matching tasks; the stored record shows the progress even after an interruption."""
        whole = False
        self._save_record()
        try:
            whole = all(self._process_page(page) for page in tasks)
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

    def _process_page(self, tasks: Sequence[Task]) -> bool:
        """Process one page; return False once the limit is reached or someone asked the operation to stop."""
        size = 1 if self._step else _PAGE
        for start in range(0, len(tasks), size):
            if self._left is not None and self._left <= 0:
                return False
            chunk = tasks[start : start + min(size, self._left or size)]
            if self._step and self._progress.done and not self._wait_for_pace():
                return False
            self._apply(chunk)
            self._report()
            if self._progress.stopped_by:
                return False
        return True

    def _wait_for_pace(self) -> bool:
        """Wait until the next task may be processed; return False if someone asked the operation to stop."""
        left = self._step
        while left > 0:
            self._sleep(min(left, _STOP_WITHIN))
            left -= _STOP_WITHIN
            if left > 0:
                self._look_for_stop()
                if self._progress.stopped_by:
                    return False
                self._save_record()  # a record that is not written for a minute looks interrupted
        return True

    def _look_for_stop(self) -> None:
        if self._record is not None and (asked := notes.find(self._store, STOP, self._record.name)) is not None:
            self._progress = replace(self._progress, stopped_by=asked.body["by"])

    def _apply(self, tasks: Sequence[Task]) -> None:
        now = self._store.now()
        rule, refusals = self._operation.rule, (IllegalMove, UnknownName, BadInput)
        for before, after in apply(self._store, tasks, lambda task: rule(task, now), now, refusals=refusals):
            try:
                if isinstance(after, LostRace):  # read the task again and retry
                    after = operate(self._store, before.task_id, lambda task: rule(task, self._store.now()))
                elif isinstance(after, OnerowError):
                    raise after
                check_readable(before, after)
            except (*refusals, KeyTaken, LostRace, CorruptRow) as error:
                problems = (*self._progress.problems, (before.task_id, with_fix(error)))[:_PROBLEMS]
                self._count(refused=self._progress.refused + 1, problems=problems)
                self._each(before, error)
            else:
                after_operation(self._scope, self._operation, after)
                self._count(done=self._progress.done + 1)
                self._each(after, None)

    def _count(self, **changes: Any) -> None:
        self._progress = replace(self._progress, **changes)
        if self._left is not None:
            self._left -= 1

    def _report(self) -> None:
        if time.monotonic() - self._reported_at >= _REPORT_EVERY or self._step >= _REPORT_EVERY:
            self._reported_at = time.monotonic()
            self._look_for_stop()
            self._save_record()
            if self._report_to is not None:
                self._report_to(self._progress)

    def _save_record(self) -> None:
        if self._record is not None:
            self._progress = replace(self._progress, seen_at=spell(self._store.now()))
            self._record = notes.put(self._store, replace(self._record, body=msgspec.to_builtins(self._progress)))

    def _drop_old_records(self) -> None:
        """Delete all but the latest records; their names sort by time."""
        if self._record is None:
            return
        if old := [note.name for note in self._store.notes(BULK)][:-_RECORDS]:
            self._store.drop_notes(BULK, old)
        self._store.drop_notes(STOP, [self._record.name])  # a request may come after the last look for it


def filter_for(scope: Scope, operation: str, where: str) -> Filter:
    """Return what a query means for an operation: its default statuses apply unless the query names some."""
    asked = filter_of(scope, where)
    return asked if asked.statuses else replace(asked, statuses=operations.BULK_DEFAULTS[operation].statuses)


def records(scope: Scope) -> list[Progress]:
    """Records of recent bulk operations, latest first."""
    now = scope.store.now()
    return [_read(note, now) for note in reversed(scope.store.notes(BULK))]


def _read(note: Note, now: datetime) -> Progress:
    found = msgspec.convert(note.body, Progress)
    silent = now - read(found.seen_at or found.started_at) > _INTERRUPTED_AFTER
    # Earlier versions stored neither a name nor seen_at.
    return replace(found, name=note.name, interrupted=silent and not found.ended_at)


def ask_to_stop(store: Store, name: str, by: str) -> None:
    """Ask a bulk operation to stop after the tasks that it is processing; raise UnknownName if none has this name."""
    record = notes.find(store, BULK, name)
    if record is None:
        raise UnknownName(f"no operation {name!r}", fix="to list them: onerow operations", field="name")
    found = _read(record, store.now())
    if found.ended_at:
        raise BadInput(f"operation {name} has ended", field="name")
    if found.interrupted:
        raise BadInput(
            f"operation {name} was interrupted: its process has written nothing since {found.seen_at or found.started_at}",
            fix="nothing is left to stop; to continue, run the operation again",
            field="name",
        )
    notes.put(store, Note(STOP, name, {"by": by, "at": spell(store.now())}))
