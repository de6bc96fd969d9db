"""Counting: how many tasks stand where."""

from collections import Counter
from datetime import datetime

from onerow.core.status import WAITING, Status
from onerow.ports import Filter, Tally
from onerow.stores.mongo.documents import Document, moment_of, task_of
from onerow.stores.mongo.door import Rooms
from onerow.stores.mongo.filters import judge_of, query_of

_Group = tuple[str, str, Status, bool]


def count(rooms: Rooms, where: Filter) -> list[Tally]:
    """See ports.Store.count."""
    judge = judge_of(where)
    counts: Counter[_Group] = Counter()
    oldest: dict[_Group, datetime] = {}
    if judge is None:
        for row in rooms.tasks.aggregate([{"$match": query_of(where)}, _GROUP]):
            group = _group(row["_id"])
            counts[group] = int(row["count"])
            if group[2] is WAITING:
                oldest[group] = moment_of(row["oldest"])
    else:
        for task in map(task_of, rooms.tasks.find(query_of(where))):
            if judge(task):
                group = (task.pipeline, task.phase, task.status, task.parked)
                counts[group] += 1
                if task.status is WAITING:
                    oldest[group] = min(task.run_at, oldest.get(group, task.run_at))
    return [Tally(*group, counts[group], oldest.get(group)) for group in sorted(counts)]


_GROUP: Document = {
    "$group": {
        "_id": {
            "pipeline": "$pipeline",
            "type": "$type",
            "status": "$status",
            "parked": {"$and": [{"$eq": ["$status", "waiting"]}, {"$gt": ["$awaiting", None]}]},
        },
        "count": {"$sum": 1},
        "oldest": {"$min": "$run_at"},
    }
}


def _group(key: Document) -> _Group:
    return key.get("pipeline", ""), key["type"], Status(key["status"]), key["parked"]
