"""Output lines of tasks: one document per line, in order and bounded; the oldest are dropped first.

Line number 0 is the header of a task's output: the number of lines written, and the bytes kept. Line numbers have no
gaps, so the number of the first line that is left tells how many were dropped.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, groupby

from pymongo import ReturnDocument

from onerow.core.output_bound import OutputBound, byte_size
from onerow.ports import LogLine, LogPage
from onerow.stores.mongo.connections import Collections
from onerow.stores.mongo.documents import Document, moment_of

_BEYOND = 2**62


def append(collections: Collections, lines: Sequence[LogLine], bound: OutputBound) -> None:
    """Append lines; lines of the same task keep their order."""
    by_task = sorted(enumerate(lines), key=lambda pair: (pair[1].task_id, pair[0]))
    for task_id, group in groupby(by_task, key=lambda pair: pair[1].task_id):
        _append_to(collections, task_id, [line for _, line in group], bound)


def _append_to(collections: Collections, task_id: str, lines: list[LogLine], bound: OutputBound) -> None:
    sizes = [byte_size(line.text) for line in lines]
    head = collections.log.find_one_and_update(
        {"_id": _key(task_id, 0)},
        {"$inc": {"next": len(lines), "size": sum(sizes)}},
        upsert=True,
        return_document=ReturnDocument.AFTER,
    )
    assert head is not None  # an upsert always returns a document
    last, size = int(head["next"]), int(head["size"])
    first = last - len(lines) + 1
    collections.log.insert_many(
        [
            {
                "_id": _key(task_id, first + index),
                "at": line.at,
                "phase": line.phase,
                "attempt": line.attempt,
                "level": line.level,
                "text": line.text,
                "size": its_size,
            }
            for index, (line, its_size) in enumerate(zip(lines, sizes, strict=True))
        ],
        ordered=False,
    )
    # Line numbers have no gaps: without dropped lines, the last number is the number of lines.
    if bound.exceeded(last, size):
        _drop_oldest(collections, task_id, last, size, bound)


def _drop_oldest(collections: Collections, task_id: str, last: int, size: int, bound: OutputBound) -> None:
    kept = collections.log.find(_after(task_id, 0), {"size": 1}).sort("_id")
    oldest = next(kept, None)
    if oldest is None:
        return
    first = int(oldest["_id"]["seq"])
    count, freed = bound.drop(last - first + 1, size, (int(line["size"]) for line in chain([oldest], kept)))
    if not count:
        return
    # If two writers drop lines at once, `size` stays too high for one of them, and is not reduced twice.
    dropped = collections.log.delete_many({"_id": {"$gte": _key(task_id, first), "$lt": _key(task_id, first + count)}})
    if dropped.deleted_count == count:
        collections.log.update_one({"_id": _key(task_id, 0)}, {"$inc": {"size": -freed}})


def read_page(collections: Collections, task_id: str, after: int, limit: int, tail: int | None) -> LogPage:
    """Return the lines after a number, or the last `tail` of them."""
    wanted = limit if tail is None else tail
    rows: list[Document] = []
    if wanted > 0:
        found = collections.log.find(_after(task_id, max(after, 0)))
        rows = list(found.sort("_id", 1 if tail is None else -1).limit(wanted))
    if tail is not None:
        rows.reverse()
    lines = [_line(task_id, row) for row in rows]
    return LogPage(lines, lines[-1].seq if lines else after, _dropped(collections, task_id))


def remove(collections: Collections, task_ids: Iterable[str]) -> None:
    """Remove the output of tasks."""
    heads = collections.log.find({"_id": {"$in": [_key(task_id, 0) for task_id in task_ids]}}, {"_id": 1})
    for head in list(heads):  # most tasks have no output
        task_id = head["_id"]["task_id"]
        collections.log.delete_many(_after(task_id, -1))


def _dropped(collections: Collections, task_id: str) -> int:
    first = collections.log.find_one(_after(task_id, 0), {"_id": 1}, sort=[("_id", 1)])
    if first is not None:
        return int(first["_id"]["seq"]) - 1
    head = collections.log.find_one({"_id": _key(task_id, 0)})
    return 0 if head is None else int(head["next"])


def _after(task_id: str, seq: int) -> Document:
    return {"_id": {"$gt": _key(task_id, seq), "$lt": _key(task_id, _BEYOND)}}


def _line(task_id: str, row: Document) -> LogLine:
    return LogLine(
        task_id, moment_of(row["at"]), row["phase"], int(row["attempt"]), row["level"], row["text"], int(row["_id"]["seq"])
    )  # fmt: skip


def _key(task_id: str, seq: int) -> Document:
    return {"task_id": task_id, "seq": seq}
