"""Finding: pages by key, and searches that stop when their time is over."""

import base64
from collections.abc import Iterator
from datetime import datetime, timedelta
from time import monotonic
from typing import Literal

import msgspec

from onerow.core.corruption import decoded
from onerow.core.errors import BadInput
from onerow.core.status import FAILED, OPEN
from onerow.core.task import Task
from onerow.core.times import read, spell
from onerow.ports import Filter, LeaseRecord, Order, Page, Search
from onerow.stores.mongo.connections import Collections
from onerow.stores.mongo.documents import ID, Document, moment_of, task_of
from onerow.stores.mongo.filters import ORDERS, judge_of, query_of
from onerow.stores.mongo.schema import A_TIME, PROCESSING

_encode = msgspec.json.Encoder().encode
_FIRST_STRETCH, _LONGEST_STRETCH = 500, 16_000

Place = tuple[datetime, str]  # the moment by which tasks are ordered, and the id


def find(rooms: Collections, where: Filter, limit: int, order: Order, after: str | None) -> Page:
    """See ports.Store.find."""
    start = None if after is None else _read_cursor(after)
    tasks = list(_first(rooms, where, order, limit + 1, start, None))
    if len(tasks) <= limit or limit < 1:
        return Page(tasks[:limit])
    return Page(tasks[:limit], _write_cursor(_place(tasks[limit - 1], order)))


def leases(rooms: Collections, pipeline: str | None, phase: str | None, limit: int) -> list[LeaseRecord]:
    """See ports.Store.leases."""
    named = {"pipeline": pipeline, "type": phase}
    where = PROCESSING | {"leased_until": A_TIME} | {key: name for key, name in named.items() if name is not None}
    shown = dict.fromkeys(("pipeline", "type", "token", "leased_by", "leased_until"), 1)
    rows = rooms.tasks.find(where, shown).sort([("leased_until", 1), ("_id", 1)]).limit(limit)
    return [
        LeaseRecord(
            row["_id"],
            row.get("pipeline", ""),
            row["type"],
            int(row.get("token", 0)),
            row.get("leased_by") or "",
            moment_of(row["leased_until"]),
        )
        for row in rows
    ]


def search(
    rooms: Collections,
    where: Filter,
    limit: int,
    order: Literal["newest", "latest"],
    after: str | None,
    within: timedelta,
) -> Search:
    """See ports.Glance.search: stretch by stretch, each twice as long as the last, until the time is over."""
    walked = _walked(where, order)
    if walked is None:
        page = find(rooms, where, limit, order, after)
        return Search(page.tasks, page.next)
    until = monotonic() + within.total_seconds()
    place = None if after is None else _read_cursor(after)
    found: list[Task] = []
    stretch, looked_at = _FIRST_STRETCH, 0
    while True:
        end = _end_of_stretch(rooms, walked, order, place, stretch)
        found += _first(rooms, where, order, limit + 1 - len(found), place, end)
        if len(found) > limit:
            return Search(found[:limit], _write_cursor(_place(found[limit - 1], order)))
        if end is None:
            return Search(found)
        looked_at += stretch
        place = end
        if monotonic() >= until:
            return Search(found, _write_cursor(place), place[0], looked_at)
        stretch = min(stretch * 2, _LONGEST_STRETCH)


def _first(
    rooms: Collections, where: Filter, order: Order, limit: int, after: Place | None, until: Place | None
) -> Iterator[Task]:
    """The first tasks that match between two places, judged here where the server can't."""
    key, direction = ORDERS[order]
    terms = [query_of(where)]
    if key == "completed_at":
        terms.append({key: A_TIME})
    further, back = ("$lt", "$gt") if direction < 0 else ("$gt", "$lt")
    if after is not None:
        terms.append(_beyond(key, further, after, or_there=False))
    if until is not None:
        terms.append(_beyond(key, back, until, or_there=True))
    judge = judge_of(where)
    with rooms.tasks.find({"$and": terms}).sort([(key, direction), ("_id", direction)]) as found:
        if judge is None:
            yield from decoded(list(found.limit(limit)), task_of, ID)
            return
        for document in found:
            (task,) = decoded([document], task_of, ID)
            if judge(task):
                yield task
                limit -= 1
                if not limit:
                    return


def _beyond(key: str, comparison: str, place: Place, *, or_there: bool) -> Document:
    moment, task_id = place
    # The range stands outside as well, so that the index is entered at the place and not walked up to it.
    return {
        "$and": [
            {key: {f"{comparison}e": moment}},
            {"$or": [{key: {comparison: moment}}, {"_id": {f"{comparison}e" if or_there else comparison: task_id}}]},
        ]
    }


def _walked(where: Filter, order: Literal["newest", "latest"]) -> tuple[str, Document] | None:
    """The index that a question must walk, and which part of it; None: another finds the few that matter."""
    few = (
        where.parent_id,
        where.held_key,
        where.leased_by,
        where.lease_ended_before,
        where.awaiting,
        where.held_until_before,
    )
    # Open tasks are few as a rule, and have their indexes; but not so few that all could be read to judge them here.
    open_only = where.parked or (where.statuses and where.statuses <= OPEN)
    if any(value is not None for value in few) or (open_only and judge_of(where) is None):
        return None
    if order == "latest":
        if where.statuses == {FAILED}:
            return "task_failed", {"status": "failed", "completed_at": A_TIME}
        return "task_ended", {"completed_at": A_TIME}
    if where.user_id:
        return "task_of_user", {"user_id": where.user_id}
    return "task_created", {}


def _end_of_stretch(
    rooms: Collections, walked: tuple[str, Document], order: Order, after: Place | None, length: int
) -> Place | None:
    """The last place of the next `length` tasks of an index; None: fewer are left."""
    index, part = walked
    key, direction = ORDERS[order]
    terms = [part] if after is None else [part, _beyond(key, "$lt", after, or_there=False)]
    found = rooms.tasks.find({"$and": terms}, {key: 1}, hint=index).sort([(key, direction), ("_id", direction)])
    row = next(iter(found.skip(length - 1).limit(1)), None)
    return None if row is None else (moment_of(row[key]), row["_id"])


def _place(task: Task, order: Order) -> Place:
    return getattr(task, ORDERS[order][0]), task.task_id


def _write_cursor(place: Place) -> str:
    return base64.urlsafe_b64encode(_encode([spell(place[0]), place[1]])).decode()


def _read_cursor(text: str) -> Place:
    try:
        moment, task_id = msgspec.json.decode(base64.urlsafe_b64decode(text), type=tuple[str, str])
        return read(moment), task_id
    except Exception:
        raise BadInput(f"{text!r} is not where a page ended; pass a page's `next` as it is", field="after") from None
