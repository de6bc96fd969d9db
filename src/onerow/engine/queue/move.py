"""Move a whole queue from one store to another, comparing row by row; an interrupted move can be started again.

Every step is idempotent: a row that already exists in the target is compared, not inserted again. So no progress needs
to be stored.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import msgspec

from onerow.core import values
from onerow.core.errors import BadInput, IllegalMove, LostRace
from onerow.core.filters import Filter
from onerow.core.status import PROCESSING
from onerow.core.task import FIELDS, JSON_FIELDS, Task
from onerow.engine.control import definitions, notes, rates, schedules, stats
from onerow.engine.control.relocation import (
    CHECK_EVERY,
    MOVED_BY,
    RELOCATION,
    Relocation,
    announce,
    arrived,
    end,
    refuse_adds,
    relocation_of,
    undo,
)
from onerow.engine.queue.compare_and_swap import pages
from onerow.ports import Existing, Identified, Inserted, LogLine, Move, Note, Store, Swapped

KINDS = (
    definitions.PLAN,
    definitions.LIMIT,
    definitions.PAUSE,
    definitions.HOLD,
    rates.RATE,
    schedules.PROGRESS,
    stats.STATS,
)
"""Kinds of notes that move; the worker registry and cached counts do not."""

_PAGE = 500
_ROUNDS = 20


class Moved(msgspec.Struct):
    """Progress of a move."""

    total: int  # tasks in the source
    seen: int = 0  # tasks compared in this round
    added: int = 0
    renewed: int = 0  # existed in the target, and were updated
    lines: int = 0  # log lines added
    notes: int = 0
    left: int = 0  # tasks of the source that are older than the move and missing in the target
    first_left: str = ""


def move(
    source: Store,
    target: Store,
    progress: Callable[[Moved], None] = lambda moved: None,
    wait: Callable[[float], None] = time.sleep,
) -> Moved:
    """Copy everything to the target, until a whole round finds no difference.

    The source keeps its copy, stays paused, and accepts no new tasks from then on. Once a move is complete, moving
    again adds tasks that were added to the source since, and leaves everything else in the target unchanged.

    Raises IllegalMove while tasks are processing, and BadInput when the target has tasks of its own.
    """
    _refuse_same(source, target)
    before = relocation_of(source)
    known = before is not None and arrived(target, before)
    if before is not None and before.ended is not None:
        if not known:
            raise BadInput(
                f"the queue of {source.url} was moved to {before.to}", fix="move it on from there", field="source"
            )
        return _move_late_tasks(source, target, before, progress)
    _refuse_foreign_tasks(source, target)
    _pause(source, target)
    _refuse_running(source)
    moved = Moved(sum(line.count for line in source.count(Filter(hidden=True))))
    moved.notes = _move_notes(source, target)
    _move_rows(source, target, moved, progress)
    relocation = before if before is not None and known else Relocation(uuid.uuid4().hex, target.url)
    announce(target, relocation, source.url)
    refuse_adds(source, relocation)
    # Processes that add tasks may not have noticed the refusal before that, so the last round runs afterwards.
    wait(CHECK_EVERY)
    moved_until = _move_rows(source, target, moved, progress)
    undo(target)  # of an earlier move away from the target, to which the queue now returns
    end(source, relocation, moved_until)
    return moved


def _move_rows(source: Store, target: Store, moved: Moved, progress: Callable[[Moved], None]) -> datetime:
    """Repeat until a round finds no difference; return the time up to which the target has all tasks."""
    for _ in range(_ROUNDS):
        moved.seen = differing = 0
        until = source.now()
        for page in _pages(source):
            differing += _move_page(source, target, page, moved)
            until = max(until, *(task.created_at for task in page))
            moved.seen += len(page)
            progress(moved)
        if not differing:
            _refuse_running(source)
            _refuse_foreign_tasks(source, target)
            return until
    raise LostRace(f"{source.url} kept changing", fix="find out who still writes to it, then move again")


def _move_late_tasks(source: Store, target: Store, relocation: Relocation, progress: Callable[[Moved], None]) -> Moved:
    """Add the tasks that were added to the source after the move.

    A task that is older than the move and missing in the target may have been purged there or have been committed late:
    it is counted but not added, because it could run twice.
    """
    assert relocation.ended is not None
    moved = Moved(sum(line.count for line in source.count(Filter(hidden=True))))
    until = relocation.ended
    for page in _pages(source):
        in_target = {task.task_id for task in target.fetch([task.task_id for task in page])}
        missing = [task for task in page if task.task_id not in in_target]
        late = [task for task in missing if task.created_at > relocation.ended]
        answers = target.insert(late) if late else []
        added = {answer.task.task_id for answer in answers if isinstance(answer, Inserted)}
        left = [task for task in missing if task.task_id not in added]
        until = max([until, *(task.created_at for task in late)])
        moved.added += len(added)
        moved.left += len(left)
        moved.first_left = moved.first_left or (left[0].task_id if left else "")
        moved.seen += len(page)
        progress(moved)
    end(source, relocation, until)
    return moved


def _refuse_same(source: Store, target: Store) -> None:
    """Raise if the target is the source under another URL; prepare the target."""
    refusal = BadInput(f"source and target are the same store: {source.url} and {target.url}", field="store")
    if source.url == target.url or _identity(source) == _identity(target) is not None:
        raise refusal
    target.prepare()
    # URLs may differ for the same store: a note written to the source is readable in the target only if they are one.
    probe = f"is it the same? {uuid.uuid4().hex}"
    notes.put(source, Note(RELOCATION, probe, {}))
    try:
        if notes.find(target, RELOCATION, probe) is not None:
            raise refusal
    finally:
        source.drop_notes(RELOCATION, [probe])


def _identity(store: Store) -> object:
    return store.identity() if isinstance(store, Identified) else None


def _pause(source: Store, target: Store) -> None:
    paused = {note.name for note in source.notes(definitions.PAUSE)}
    pipelines = {line.pipeline for line in source.count(Filter())} | set(definitions.load_plans(source))
    for pipeline in sorted(pipelines):
        if f"{pipeline}/*" not in paused:
            definitions.set_pause(source, pipeline, "*", MOVED_BY, f"moved to {target.url}")


def _refuse_running(source: Store) -> None:
    running = sum(line.count for line in source.count(Filter(statuses=frozenset({PROCESSING}))))
    if running:
        raise IllegalMove(
            f"{running} task(s) are being worked on in {source.url}",
            fix="it is paused now: wait until they are done, or stop its workers, and move again",
            status=PROCESSING,
        )


def _refuse_foreign_tasks(source: Store, target: Store) -> None:
    for page in _pages(target):
        in_source = {task.task_id: task for task in source.fetch([task.task_id for task in page])}
        for task in page:
            if task.task_id not in in_source:
                raise BadInput(
                    f"{target.url} has tasks of its own, like {task.task_id}",
                    fix="move into a store that is empty",
                    field="target",
                )
            if task.version > in_source[task.task_id].version:
                raise BadInput(
                    f"task {task.task_id} was worked on in {target.url} since it came there",
                    fix="both can't go on with it: choose one of the stores",
                    field="target",
                )


def _move_page(source: Store, target: Store, page: Sequence[Task], moved: Moved) -> int:
    """Add missing rows and update changed ones; return the number of differences."""
    in_target = {task.task_id: task for task in target.fetch([task.task_id for task in page])}
    missing = [task for task in page if task.task_id not in in_target]
    for task, answer in zip(missing, target.insert(missing) if missing else [], strict=True):
        if isinstance(answer, Existing):
            raise BadInput(
                f"task {task.task_id} can't move: {answer.task.task_id} in {target.url} has its id or unique key",
                field="target",
            )
    changed = [task for task in page if task.task_id in in_target and not _same(task, in_target[task.task_id])]
    for written in target.swap([Move(in_target[task.task_id], task) for task in changed]) if changed else []:
        if not isinstance(written, Swapped):
            raise LostRace(
                f"task {written.task_id} changes in {target.url} while it moves", fix="stop the workers there"
            )
    lines = [line for task in page for line in _missing_lines(source, target, task, known=task.task_id in in_target)]
    if lines:
        target.append_log(lines)
    moved.added += len(missing)
    moved.renewed += len(changed)
    moved.lines += len(lines)
    return len(missing) + len(changed) + bool(lines)


def _missing_lines(source: Store, target: Store, task: Task, *, known: bool) -> list[LogLine]:
    """Return the log lines that are missing in the target."""
    lines = _output(source, task.task_id)
    if not lines:
        return []
    existing = _output(target, task.task_id) if known else []
    if lines[: len(existing)] != existing:
        raise LostRace(f"the output of task {task.task_id} in {target.url} is another than in {source.url}")
    return lines[len(existing) :]


def _output(store: Store, task_id: str) -> list[LogLine]:
    """Return all log lines, without sequence numbers, because each store assigns its own."""
    found: list[LogLine] = []
    page = store.read_log(task_id)
    while page.lines:
        found += [msgspec.structs.replace(line, seq=0) for line in page.lines]
        page = store.read_log(task_id, after=page.next)
    return found


def _move_notes(source: Store, target: Store) -> int:
    moved = 0
    for kind in KINDS:
        in_target = {note.name: note for note in target.notes(kind)}
        to_write = []
        for note in source.notes(kind):
            if kind == definitions.PAUSE and note.body.get("by") == MOVED_BY:
                continue  # this pause applies to the source only
            existing = in_target.get(note.name)
            if existing is None or existing.body != note.body:
                to_write.append(Note(kind, note.name, note.body, existing.version if existing else 0))
        for start in range(0, len(to_write), _PAGE):
            if not all(target.write_notes(to_write[start : start + _PAGE])):
                raise LostRace(f"a {kind} of {target.url} changes while the queue moves", fix="stop the workers there")
        moved += len(to_write)
    return moved


def _pages(store: Store) -> Iterator[Sequence[Task]]:
    """Iterate over pages of all rows, tombstones included."""
    return filter(None, pages(store, Filter(hidden=True), "oldest", _PAGE))


def _same(one: Task, other: Task) -> bool:
    """Whether all fields are equal; stores may format equal JSON values differently."""
    return one == other or all(
        values.decode(mine) == values.decode(theirs) if field in JSON_FIELDS else mine == theirs
        for field in FIELDS
        if (mine := getattr(one, field)) != (theirs := getattr(other, field))
    )
