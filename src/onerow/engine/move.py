"""Moving house: a whole queue from one store to another, checked row by row; cut off, it goes on where it was.

Every step may be repeated: a row that stands there already is compared, not added again. So nothing needs to be
remembered about how far it came, and moving once more is the verification.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from onerow.core import values
from onerow.core.errors import BadInput, IllegalMove, LostRace
from onerow.core.status import PROCESSING
from onerow.core.task import FIELDS, JSON_FIELDS, Task
from onerow.engine import crons, definitions, rates, statistics
from onerow.ports import Existing, Filter, LogLine, Move, Note, Store, Swapped

BY = "onerow move"
KINDS = (
    definitions.PLAN,
    definitions.LIMIT,
    definitions.PAUSE,
    definitions.HOLD,
    rates.RATE,
    crons.MARK,
    statistics.STATS,
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


def move(source: Store, target: Store, progress: Callable[[Moved], None] = lambda moved: None) -> Moved:
    """Carry everything over, until a whole round finds nothing that differs. The source stays as it was, and paused.

    Raises IllegalMove while tasks are processing, and BadInput when the target has tasks of its own.
    """
    if source.url == target.url:
        raise BadInput(f"source and target are the same store: {source.url}", field="store")
    target.prepare()
    _refuse_strangers(source, target)
    _pause(source, target)
    _refuse_running(source)
    moved = Moved(sum(tally.count for tally in source.count(Filter(hidden=True))))
    moved.notes = _move_notes(source, target)
    for _ in range(_ROUNDS):
        moved.seen = differing = 0
        for page in _pages(source):
            differing += _move_page(source, target, page, moved)
            moved.seen += len(page)
            progress(moved)
        if not differing:
            _refuse_running(source)
            _refuse_strangers(source, target)
            return moved
    raise LostRace(f"{source.url} kept changing; find out who still writes to it, then move again")


def _pause(source: Store, target: Store) -> None:
    paused = {note.name for note in source.notes(definitions.PAUSE)}
    pipelines = {tally.pipeline for tally in source.count(Filter())} | set(definitions.load_plans(source))
    for pipeline in sorted(pipelines):
        if f"{pipeline}/*" not in paused:
            definitions.set_pause(source, pipeline, "*", BY, f"moved to {target.url}")


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
            if kind == definitions.PAUSE and note.body.get("by") == BY:
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
