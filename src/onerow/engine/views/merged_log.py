"""The logs of several tasks as one, in the order of time: of running and just ended tasks, or of those of a query."""

from collections.abc import Mapping

import msgspec

from onerow.core.filters import Filter
from onerow.core.status import ENDS, PROCESSING
from onerow.engine.queue.queue import Queue
from onerow.engine.views.rows import Row
from onerow.engine.views.views import Views
from onerow.ports import LogLine

MOST_TASKS = 20
_JUST_ENDED = 10
_TAIL = 50  # lines of a task that is read for the first time
_NEW = 500  # lines of a task that was read before


class Position(msgspec.Struct, frozen=True):
    """How far the log of a task was read; `ended`: it was read after the task's end, so that no line can follow."""

    seq: int
    ended: bool


class MergedLines(msgspec.Struct, frozen=True):
    """New lines in the order of time, the tasks that were looked at, and the positions for the next read."""

    lines: list[LogLine]
    tasks: dict[str, Row]
    positions: dict[str, Position]
    more: bool  # other tasks match too; their logs were not read


def read_merged(views: Views, queue: Queue, query: str, known: Mapping[str, Position]) -> MergedLines:
    """Read what the logs of at most `MOST_TASKS` tasks (and the ones that just ended) have after known positions."""
    if query:
        page = views.find(query, limit=MOST_TASKS)
        rows = page.tasks
    else:
        page = views.find(Filter(statuses=frozenset({PROCESSING})), limit=MOST_TASKS)
        rows = page.tasks + views.find(Filter(statuses=ENDS), limit=_JUST_ENDED).tasks
    lines: list[LogLine] = []
    positions: dict[str, Position] = {}
    for row in rows:
        before = known.get(row.task_id)
        ended = row.status in ENDS
        if before is not None and before.ended and ended:
            positions[row.task_id] = before
            continue
        if before is None:
            found = queue.logs(row.task_id, tail=_TAIL)
        else:
            found = queue.logs(row.task_id, after=before.seq, limit=_NEW)
        lines += found.lines
        positions[row.task_id] = Position(found.next, ended and len(found.lines) < _NEW)
    lines.sort(key=lambda line: (line.at, line.task_id, line.seq))
    return MergedLines(lines, {row.task_id: row for row in rows}, positions, page.next is not None)
