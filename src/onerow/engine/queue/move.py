"""Moving house: a whole queue from one store to another, checked row by row; cut off, it goes on where it was.

Every step may be repeated: a row that stands there already is compared, not added again. So nothing needs to be
remembered about how far it came.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import msgspec

from onerow.core import values
from onerow.core.errors import BadInput, IllegalMove, LostRace
from onerow.core.status import PROCESSING
from onerow.core.task import FIELDS, JSON_FIELDS, Task
from onerow.engine.control import definitions, rates, schedules, stats
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
from onerow.ports import Existing, Filter, Identified, Inserted, LogLine, Move, Note, Store, Swapped

KINDS = (
    definitions.PLAN,
    definitions.LIMIT,
    definitions.PAUSE,
    definitions.HOLD,
    rates.RATE,
    schedules.MARK,
    stats.STATS,
)
"""Notes that move; the roll of workers and what is counted anew don't."""

_PAGE = 500
_ROUNDS = 20


class Moved(msgspec.Struct):
    """How far a move has come."""

    total: int  # tasks in the source
    seen: int = 0  # tasks compared in this round
    added: int = 0
    renewed: int = 0  # were there, and had changed since
    lines: int = 0  # of output, added
    notes: int = 0
    left: int = 0  # tasks of the source that the target has not, and that are older than the move
    first_left: str = ""


def move(
    source: Store,
    target: Store,
    progress: Callable[[Moved], None] = lambda moved: None,
    wait: Callable[[float], None] = time.sleep,
) -> Moved:
    """Carry everything over, until a whole round finds nothing that differs.

    The source keeps its copy, stays paused, and takes no new tasks from then on. Once that is done, moving again adds
    what the source was given since and leaves everything else at the target alone.

    Raises IllegalMove while tasks are processing, and BadInput when the target has tasks of its own.
    """
    _refuse_same(source, target)
    before = relocation_of(source)
    known = before is not None and arrived(target, before)
    if before is not None and before.ended is not None:
        if not known:
            raise BadInput(f"the queue of {source.url} was moved to {before.to}; move it on from there", field="source")
        return _carry_late(source, target, before, progress)
    _refuse_strangers(source, target)
    _pause(source, target)
    _refuse_running(source)
    moved = Moved(sum(tally.count for tally in source.count(Filter(hidden=True))))
    moved.notes = _move_notes(source, target)
    _move_rows(source, target, moved, progress)
    going = before if before is not None and known else Relocation(uuid.uuid4().hex, target.url)
    announce(target, going, source.url)
    refuse_adds(source, going)
    # Until then a process that adds tasks may not have read that they are refused: the last round comes after it.
    wait(CHECK_EVERY)
    carried_until = _move_rows(source, target, moved, progress)
    undo(target)  # of an earlier move away from there: the queue has come back
    end(source, going, carried_until)
    return moved


def _move_rows(source: Store, target: Store, moved: Moved, progress: Callable[[Moved], None]) -> datetime:
    """Repeat until a round finds no difference; the time up to which the source's tasks are in the target."""
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
            _refuse_strangers(source, target)
            return until
    raise LostRace(f"{source.url} kept changing; find out who still writes to it, then move again")


def _carry_late(source: Store, target: Store, gone: Relocation, progress: Callable[[Moved], None]) -> Moved:
    """Add the tasks that the source was given after the move.

    A task that is older than the move and not in the target may have been removed there (purged) or have been committed
    late: it is not added, because it could run twice; it is counted.
    """
    assert gone.ended is not None
    moved = Moved(sum(tally.count for tally in source.count(Filter(hidden=True))))
    until = gone.ended
    for page in _pages(source):
        there = {task.task_id for task in target.fetch([task.task_id for task in page])}
        missing = [task for task in page if task.task_id not in there]
        late = [task for task in missing if task.created_at > gone.ended]
        answers = target.insert(late) if late else []
        added = {answer.task.task_id for answer in answers if isinstance(answer, Inserted)}
        left = [task for task in missing if task.task_id not in added]
        until = max([until, *(task.created_at for task in late)])
        moved.added += len(added)
        moved.left += len(left)
        moved.first_left = moved.first_left or (left[0].task_id if left else "")
        moved.seen += len(page)
        progress(moved)
    end(source, gone, until)
    return moved


def _refuse_same(source: Store, target: Store) -> None:
    """Refuse a target that is the source under another name; prepares the target."""
    refusal = BadInput(f"source and target are the same store: {source.url} and {target.url}", field="store")
    if source.url == target.url or _identity(source) == _identity(target) is not None:
        raise refusal
    target.prepare()
    # However the two are addressed: what is written to the one is read from the other only if they are one.
    mark = f"is it the same? {uuid.uuid4().hex}"
    source.write_notes([Note(RELOCATION, mark, {})])
    try:
        if any(note.name == mark for note in target.notes(RELOCATION, since=mark)):
            raise refusal
    finally:
        source.drop_notes(RELOCATION, [mark])


def _identity(store: Store) -> object:
    return store.identity() if isinstance(store, Identified) else None


def _pause(source: Store, target: Store) -> None:
    paused = {note.name for note in source.notes(definitions.PAUSE)}
    pipelines = {tally.pipeline for tally in source.count(Filter())} | set(definitions.load_plans(source))
    for pipeline in sorted(pipelines):
        if f"{pipeline}/*" not in paused:
            definitions.set_pause(source, pipeline, "*", MOVED_BY, f"moved to {target.url}")


def _refuse_running(source: Store) -> None:
    running = sum(tally.count for tally in source.count(Filter(statuses=frozenset({PROCESSING}))))
    if running:
        raise IllegalMove(
            f"{running} task(s) are being worked on in {source.url}; it is paused now, so wait until they are done, "
            f"or stop its workers, and move again",
            status=PROCESSING,
        )


def _refuse_strangers(source: Store, target: Store) -> None:
    for page in _pages(target):
        ours = {task.task_id: task for task in source.fetch([task.task_id for task in page])}
        for task in page:
            if task.task_id not in ours:
                raise BadInput(
                    f"{target.url} has tasks of its own, like {task.task_id}; move into a store that is empty",
                    field="target",
                )
            if task.version > ours[task.task_id].version:
                raise BadInput(
                    f"task {task.task_id} was worked on in {target.url} since it came there; "
                    f"both can't go on with it: choose one of the stores",
                    field="target",
                )


def _move_page(source: Store, target: Store, page: Sequence[Task], moved: Moved) -> int:
    """Add what is missing and renew what has changed; how many differed."""
    there = {task.task_id: task for task in target.fetch([task.task_id for task in page])}
    missing = [task for task in page if task.task_id not in there]
    for task, answer in zip(missing, target.insert(missing) if missing else [], strict=True):
        if isinstance(answer, Existing):
            raise BadInput(
                f"task {task.task_id} can't move: {answer.task.task_id} in {target.url} has its id or unique key",
                field="target",
            )
    changed = [task for task in page if task.task_id in there and not _same(task, there[task.task_id])]
    for written in target.swap([Move(there[task.task_id], task) for task in changed]) if changed else []:
        if not isinstance(written, Swapped):
            raise LostRace(f"task {written.task_id} changes in {target.url} while it moves; stop the workers there")
    lines = [line for task in page for line in _missing_lines(source, target, task, known=task.task_id in there)]
    if lines:
        target.append_log(lines)
    moved.added += len(missing)
    moved.renewed += len(changed)
    moved.lines += len(lines)
    return len(missing) + len(changed) + bool(lines)


def _missing_lines(source: Store, target: Store, task: Task, *, known: bool) -> list[LogLine]:
    """The output that hasn't moved yet."""
    lines = _output(source, task.task_id)
    if not lines:
        return []
    came = _output(target, task.task_id) if known else []
    if lines[: len(came)] != came:
        raise LostRace(f"the output of task {task.task_id} in {target.url} is another than in {source.url}")
    return lines[len(came) :]


def _output(store: Store, task_id: str) -> list[LogLine]:
    """All lines; their numbers are each store's own."""
    found: list[LogLine] = []
    page = store.read_log(task_id)
    while page.lines:
        found += [msgspec.structs.replace(line, seq=0) for line in page.lines]
        page = store.read_log(task_id, after=page.next)
    return found


def _move_notes(source: Store, target: Store) -> int:
    moved = 0
    for kind in KINDS:
        there = {note.name: note for note in target.notes(kind)}
        to_write = []
        for note in source.notes(kind):
            if kind == definitions.PAUSE and note.body.get("by") == MOVED_BY:
                continue  # the pause is for the old house
            came = there.get(note.name)
            if came is None or came.body != note.body:
                to_write.append(Note(kind, note.name, note.body, came.version if came else 0))
        for start in range(0, len(to_write), _PAGE):
            moved += sum(target.write_notes(to_write[start : start + _PAGE]))
    return moved


def _pages(store: Store) -> Iterator[Sequence[Task]]:
    """Every row, tombstones too."""
    after: str | None = None
    while True:
        page = store.find(Filter(hidden=True), limit=_PAGE, order="oldest", after=after)
        if page.tasks:
            yield page.tasks
        after = page.next
        if after is None:
            return


def _same(one: Task, other: Task) -> bool:
    """Equal field by field; JSON may be spelt differently by another store."""
    return one == other or all(
        values.decode(mine) == values.decode(theirs) if field in JSON_FIELDS else mine == theirs
        for field in FIELDS
        if (mine := getattr(one, field)) != (theirs := getattr(other, field))
    )
