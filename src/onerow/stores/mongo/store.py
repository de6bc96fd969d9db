"""The Store on MongoDB: every act is one document's atomic change, journaled before it is acknowledged."""

import base64
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from pymongo import DeleteOne
from pymongo.errors import PyMongoError

from onerow.core.errors import BadInput
from onerow.core.status import WAITING
from onerow.core.task import Task
from onerow.core.times import read, spell, to_millis
from onerow.ports import (
    Claim,
    Existing,
    Filter,
    Held,
    Inserted,
    Lease,
    LogLine,
    LogPage,
    Lost,
    Move,
    Note,
    Order,
    Page,
    SwapAnswer,
    Tally,
)
from onerow.stores.mongo import claiming, counting, extending, inserting, logbook, notes, schema, swapping
from onerow.stores.mongo.clock import SERVER_NOW, ServerClock, Stamp
from onerow.stores.mongo.documents import Document, task_of
from onerow.stores.mongo.door import Door, Rooms, translated
from onerow.stores.mongo.filters import ORDERS, judge_of, query_of
from onerow.stores.mongo.inspecting import Finding, inspect
from onerow.stores.mongo.waker import MongoWaker, ring

_encode = msgspec.json.Encoder().encode


class MongoStore:
    """See ports.Store. `clock` stands in for the server's, so that a test can own the time."""

    def __init__(
        self,
        url: str,
        *,
        database: str | None = None,
        collection: str = "task_queue",
        clock: Callable[[], datetime] | None = None,
        bulk: bool | None = None,  # None: as the server can; False: as for servers before 8.0
        log_lines: int = 10_000,
        log_bytes: int = 1_000_000,
    ) -> None:
        self._door = Door(url, database, collection, schema.check, bulk)
        self._clock = clock or ServerClock(self._server_time)
        self._own_time = clock is not None
        self._bounds = logbook.Bounds(log_lines, log_bytes)
        self._wakers: list[MongoWaker] = []

    @property
    def url(self) -> str:
        return self._door.url

    def prepare(self) -> None:
        with self._door.open(checked=False) as rooms:
            schema.migrate(rooms)

    def check(self) -> None:
        with self._door.open(checked=False) as rooms:
            schema.check(rooms)

    def now(self) -> datetime:
        return to_millis(self._clock())

    def inspect(self) -> list[Finding]:
        """Whether the server, its indexes and its way of writing keep what onerow promises."""
        return inspect(self._door)

    # ── tasks ──

    def insert(self, tasks: Sequence[Task], *, tx: Any = None) -> list[Inserted | Existing]:
        if not tasks:
            return []
        with self._door.open() as rooms:
            if tx is not None:
                with translated(self.url, callers=True):
                    return inserting.insert_in(rooms, tasks, tx)
            answers = inserting.insert(rooms, tasks)
            self._tell(rooms)
        return answers

    def claim(self, claim: Claim) -> list[Task]:
        with self._door.open() as rooms:
            return claiming.claim(rooms, claim, self.now, self._stamp())

    def swap(self, moves: Sequence[Move]) -> list[SwapAnswer]:
        if not moves:
            return []
        now = self.now()
        with self._door.open() as rooms:
            answers = swapping.swap(self._door, rooms, moves, now)
            if any(_is_news(move, now) for move in moves):
                self._tell(rooms)
        return answers

    def turn(self, moves: Sequence[Move], claim: Claim | None) -> tuple[list[SwapAnswer], list[Task]]:
        return self.swap(moves), [] if claim is None else self.claim(claim)

    def extend(self, leases: Sequence[Lease], lease_for: timedelta) -> list[Held | Lost]:
        if not leases:
            return []
        with self._door.open() as rooms:
            return extending.extend(rooms, leases, lease_for, self._stamp())

    def fetch(self, ids: Sequence[str]) -> list[Task]:
        with self._door.open() as rooms:
            return [task_of(row) for row in rooms.tasks.find({"_id": {"$in": list(ids)}})] if ids else []

    def find(self, where: Filter, *, limit: int = 100, order: Order = "newest", after: str | None = None) -> Page:
        query = query_of(where)
        key, direction = ORDERS[order]
        if order == "ended":
            query = {"$and": [query, {"completed_at": schema.A_TIME}]}
        if after is not None:
            moment, task_id = _read_cursor(after)
            beyond = "$lt" if direction < 0 else "$gt"
            query = {"$and": [query, {"$or": [{key: {beyond: moment}}, {key: moment, "_id": {beyond: task_id}}]}]}
        with self._door.open() as rooms:
            tasks = list(_first(rooms, query, where, [(key, direction), ("_id", direction)], limit + 1))
        if len(tasks) <= limit or limit < 1:
            return Page(tasks[:limit])
        last = tasks[limit - 1]
        return Page(tasks[:limit], _write_cursor([spell(getattr(last, key)), last.task_id]))

    def count(self, where: Filter) -> list[Tally]:
        with self._door.open() as rooms:
            return counting.count(rooms, where)

    def remove(self, tasks: Sequence[Task]) -> int:
        if not tasks:
            return 0
        with self._door.open() as rooms:
            gone = rooms.tasks.bulk_write(
                [DeleteOne({"_id": task.task_id, "version": task.version}) for task in tasks], ordered=False
            ).deleted_count
            ids = {task.task_id for task in tasks}
            ids -= {row["_id"] for row in rooms.tasks.find({"_id": {"$in": list(ids)}}, {"_id": 1})}
            logbook.remove(rooms, ids)
        return gone

    # ── output, notes ──

    def append_log(self, lines: Sequence[LogLine]) -> None:
        with self._door.open() as rooms:
            logbook.append(rooms, lines, self._bounds)

    def read_log(self, task_id: str, *, after: int = 0, limit: int = 1000, tail: int | None = None) -> LogPage:
        with self._door.open() as rooms:
            return logbook.read_page(rooms, task_id, after, limit, tail)

    def notes(self, kind: str) -> list[Note]:
        with self._door.open() as rooms:
            return notes.read_all(rooms, kind)

    def write_notes(self, given: Sequence[Note]) -> list[bool]:
        with self._door.open() as rooms:
            return notes.write(self._door, rooms, given, self.now())

    def drop_notes(self, kind: str, names: Sequence[str]) -> int:
        with self._door.open() as rooms:
            return notes.drop(rooms, kind, names)

    # ── waking, closing ──

    def waker(self) -> MongoWaker:
        waker = MongoWaker(self._door, self._wakers.remove)
        self._wakers.append(waker)
        return waker

    def close(self) -> None:
        self._door.close()

    def count_statements(self) -> Callable[[], int]:
        """A counter of the commands that the client sends from now on."""
        return self._door.count_commands()

    def _tell(self, rooms: Rooms) -> None:
        """Work may have come: wake those in this process, and those that poll."""
        for waker in self._wakers:
            waker.poke()
        try:
            if not rooms.has_members:
                ring(rooms)
        except PyMongoError:
            pass  # what was written stands; that nobody was woken costs a moment

    def _stamp(self) -> Stamp:
        return {"$literal": self.now()} if self._own_time else SERVER_NOW

    def _server_time(self) -> datetime:
        with self._door.open(checked=False) as rooms:
            told = rooms.client.admin.command("hello").get("localTime")
            if told is None:
                (row,) = rooms.database.aggregate([{"$documents": [{"now": "$$NOW"}]}])
                told = row["now"]
        moment: datetime = told.replace(tzinfo=UTC)
        return moment


def _is_news(move: Move, now: datetime) -> bool:
    """Whether a worker elsewhere may have something to do after this move."""
    after = move.after
    if after.status is WAITING:
        return after.awaiting is None and after.run_at <= now
    return after.cancel_requested and not move.before.cancel_requested


def _first(rooms: Rooms, query: Document, where: Filter, order: list[tuple[str, int]], limit: int) -> Iterator[Task]:
    """The first tasks that match, judged here where the server can't."""
    judge = judge_of(where)
    found = rooms.tasks.find(query).sort(order)
    if judge is None:
        yield from map(task_of, found.limit(limit))
        return
    for row in found:
        task = task_of(row)
        if judge(task):
            yield task
            limit -= 1
            if not limit:
                return


def _write_cursor(place: list[str]) -> str:
    return base64.urlsafe_b64encode(_encode(place)).decode()


def _read_cursor(text: str) -> tuple[datetime, str]:
    try:
        moment, task_id = msgspec.json.decode(base64.urlsafe_b64decode(text), type=tuple[str, str])
        return read(moment), task_id
    except Exception:
        raise BadInput(f"{text!r} is not where a page ended; pass a page's `next` as it is", field="after") from None
