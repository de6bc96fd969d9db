"""Bulk acts: one act on all tasks that match, page by page, at a pace, with a record of who did it."""

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
from onerow.engine.queue import operations
from onerow.engine.queue.compare_and_swap import act as act_on_one
from onerow.engine.queue.operations import Act
from onerow.engine.queue.scope import Scope
from onerow.ports import Conflict, Filter, Move, Note, Swapped

BULK = "bulk"
_PAGE = 200
_PROBLEMS = 20
_RECORDS = 100
_TELL_EVERY = 1.0


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a bulk act got; the same is kept in the store as its record."""

    act: str
    by: str
    matched: int  # when it began
    done: int = 0
    refused: int = 0  # their status, key or plan did not allow it, or they changed again and again
    problems: tuple[tuple[str, str], ...] = ()  # the first few: task id, why
    started_at: str = ""
    ended_at: str = ""
    whole: bool = False  # nothing was left when it ended


Tell = Callable[[Progress], None]


class Selection:
    """The tasks that match a filter, to be counted and acted on. What is added after an act began is left alone.

    Every act takes `pace` ('20/min'), `limit` (at the most so many), `progress` (called now and then), `by` and `note`.
    """

    def __init__(self, queue: Scope, where: Filter) -> None:
        self._queue = queue
        self._where = where
        self._sleep: Callable[[float], None] = time.sleep

    def __len__(self) -> int:
        return self.count

    @property
    def count(self) -> int:
        """How many there are now."""
        return sum(line.count for line in self._queue.count(self._where))

    def __iter__(self) -> Iterator[Task]:
        """Every one, the newest first, read page by page."""
        after: str | None = None
        while True:
            page = self._queue.find(self._where, limit=_PAGE, after=after)
            yield from page.tasks
            if (after := page.next) is None:
                return

    def cancel(self, *, by: str = "", note: str = "", **how: Any) -> Progress:
        """End them for good; running work is stopped, and children go with their parents."""
        return self._run(operations.cancel(by, note), **how)

    def retry(self, *, policy: Retry | None = None, by: str = "", note: str = "", **how: Any) -> Progress:
        """Failed tasks run again from their phase, with a fresh budget; see `Queue.retry` about the policy."""
        return self._run(operations.retry(self._queue.plan, by, note, policy), **how)

    def replay(self, phase: str | None = None, *, by: str = "", note: str = "", **how: Any) -> Progress:
        """Completed and failed tasks run again from an earlier phase."""
        return self._run(operations.replay(self._queue.plan, phase, by, note), **how)

    def finish(self, *, phase_only: bool = False, by: str = "", note: str = "", **how: Any) -> Progress:
        """Mark waiting and failed tasks (or only their phase) as done by hand."""
        return self._run(operations.finish(self._queue.plan, phase_only, by, note), **how)

    def reschedule(self, run_at: datetime | str, *, by: str = "", note: str = "", **how: Any) -> Progress:
        """Waiting tasks are due at another time."""
        return self._run(operations.reschedule(run_at, by, note), **how)

    def set_priority(self, priority: int, *, by: str = "", note: str = "", **how: Any) -> Progress:
        """Tasks that have not ended get another place in the order."""
        return self._run(operations.prioritise(priority, by, note), **how)

    def signal(self, name: str, payload: Any = None, *, by: str = "", **how: Any) -> Progress:
        """Tell them all that something happened."""
        return self._run(operations.signal(name, payload, "", by), **how)

    def annotate(self, metadata: dict[str, Any], **how: Any) -> Progress:
        """Replace their metadata."""
        return self._run(operations.annotate(metadata), **how)

    def _run(
        self, act: Act, *, pace: str | None = None, limit: int | None = None, progress: Tell | None = None
    ) -> Progress:
        if limit is not None and (type(limit) is not int or limit < 1):
            raise BadInput(f"limit must be a whole number from 1 on, not {limit!r}", field="limit")
        step = 0.0 if pace is None else (rate := parse_rate(pace, "pace")).per / rate.count / 1000
        return _Run(self._queue, self._where, act, step, limit, progress, self._sleep).whole()


class _Run:
    """One bulk act under way."""

    def __init__(
        self,
        queue: Scope,
        where: Filter,
        act: Act,
        step: float,
        limit: int | None,
        tell: Tell | None,
        sleep: Callable[[float], None],
    ) -> None:
        self._queue, self._act, self._step, self._sleep = queue, act, step, sleep
        self._store = queue.store
        now = self._store.now()
        # What is added from now on is left alone, else an act could run after its own results for ever.
        self._where = replace(
            where, created_before=now if where.created_before is None else min(now, where.created_before)
        )
        self._left = limit
        self._tell = tell
        self._told_at = time.monotonic()
        self._record = Note(BULK, f"{spell(now)}-{uuid4().hex[:8]}", None)
        matched = sum(line.count for line in queue.count(self._where))
        self._said = Progress(act.name, act.by, matched, started_at=spell(now))

    def whole(self) -> Progress:
        """Act on all of them; the record says how far it got, also when it is interrupted."""
        whole = False
        self._keep()
        try:
            whole = all(self._some(tasks) for tasks in self._pages())
            whole = whole and (self._left is None or self._said.done + self._said.refused >= self._said.matched)
        finally:
            self._said = replace(self._said, ended_at=spell(self._store.now()), whole=whole)
            self._keep()
            self._forget()
        if self._tell is not None:
            self._tell(self._said)
        return self._said

    def _pages(self) -> Iterator[list[Task]]:
        after: str | None = None
        while True:
            page = self._queue.find(self._where, limit=_PAGE, order="oldest", after=after)
            yield page.tasks
            if (after := page.next) is None:
                return

    def _some(self, tasks: list[Task]) -> bool:
        """Whether there may be more to do."""
        size = 1 if self._step else _PAGE
        for start in range(0, len(tasks), size):
            if self._left is not None and self._left <= 0:
                return False
            some = tasks[start : start + min(size, self._left or size)]
            if self._step and self._said.done:
                self._sleep(self._step)
            self._apply(some)
            self._say()
        return True

    def _apply(self, tasks: list[Task]) -> None:
        now = self._store.now()
        moves: list[Move] = []
        for task in tasks:
            try:
                after = applied(lambda task: self._act.rule(task, now), task, now)
            except (IllegalMove, UnknownName, BadInput) as error:
                self._refuse(task.task_id, str(error))
            else:
                if after is task:
                    self._done(task)  # it was so already
                else:
                    moves.append(Move(task, after))
        for move, answer in zip(moves, self._store.swap(moves) if moves else [], strict=True):
            match answer:
                case Swapped(task=task) if task.error_class == "corrupt" != move.before.error_class:
                    self._refuse(task.task_id, task.error or "")
                case Swapped(task=task):
                    self._done(task)
                case Conflict(other_id=other):
                    self._refuse(move.before.task_id, f"its unique key is held by task {other}")
                case _:
                    self._apply_singly(move.before.task_id)

    def _apply_singly(self, task_id: str) -> None:
        """Someone wrote meanwhile: look again at whether it still matches what the act is for."""
        try:
            self._done(act_on_one(self._store, task_id, lambda task: self._act.rule(task, self._store.now())))
        except (IllegalMove, UnknownName, BadInput, KeyTaken, LostRace, CorruptRow) as error:
            self._refuse(task_id, str(error))

    def _done(self, task: Task) -> None:
        self._queue.acted(self._act, task)
        self._count(done=self._said.done + 1)

    def _refuse(self, task_id: str, why: str) -> None:
        problems = (*self._said.problems, (task_id, why))[:_PROBLEMS]
        self._count(refused=self._said.refused + 1, problems=problems)

    def _count(self, **changes: Any) -> None:
        self._said = replace(self._said, **changes)
        if self._left is not None:
            self._left -= 1

    def _say(self) -> None:
        if time.monotonic() - self._told_at >= _TELL_EVERY or self._step >= _TELL_EVERY:
            self._told_at = time.monotonic()
            self._keep()
            if self._tell is not None:
                self._tell(self._said)

    def _keep(self) -> None:
        record = replace(self._record, body=msgspec.to_builtins(self._said))
        if self._store.write_notes([record])[0]:
            self._record = replace(self._record, version=self._record.version + 1)

    def _forget(self) -> None:
        """Only the latest records are kept; their names sort by time."""
        old = [note.name for note in self._store.notes(BULK)][:-_RECORDS]
        if old:
            self._store.drop_notes(BULK, old)


def records(queue: Scope) -> list[Progress]:
    """What bulk acts were done lately, the latest first."""
    return [msgspec.convert(note.body, Progress) for note in reversed(queue.store.notes(BULK))]
