"""The Store on MongoDB: every write is an atomic change of one document, journaled before it is acknowledged."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

from pymongo import DeleteOne
from pymongo.collection import Collection

from onerow.core.corruption import decoded, without_unreadable
from onerow.core.errors import BadInput, RowRefused
from onerow.core.filters import Filter, Order
from onerow.core.output_bound import OutputBound
from onerow.core.task import Task
from onerow.core.times import to_millis
from onerow.core.wakeups import wakes
from onerow.ports import (
    Claim,
    Existing,
    Finding,
    Held,
    Inserted,
    Lease,
    LeaseRecord,
    LogLine,
    LogPage,
    Lost,
    Migration,
    Move,
    Note,
    Page,
    PhaseClaim,
    Search,
    StoreCounts,
    StoredSize,
    SwapAnswer,
    TaskCount,
)
from onerow.stores.mongo import (
    claiming,
    counts,
    extending,
    inserting,
    maintenance,
    notes,
    quarantine,
    schema,
    searching,
    swapping,
    task_log,
)
from onerow.stores.mongo.connections import Collections, Connections, translated
from onerow.stores.mongo.documents import ID, SERVER_NOW, Stamp, task_of
from onerow.stores.mongo.waker import MongoWaker, WakeCounter
from onerow.stores.shared.server_clock import ServerClock
from onerow.stores.shared.waking import any_wakes

T = TypeVar("T")


class MongoStore:
    """See ports.Store. `clock` replaces the server's clock, for tests."""

    def __init__(
        self,
        url: str,
        *,
        database: str | None = None,
        collection: str = "task_queue",
        clock: Callable[[], datetime] | None = None,
        bulk: bool | None = None,  # None: detect; False: as with servers before 8.0
        log_lines: int = 10_000,
        log_size: int = 1_000_000,
    ) -> None:
        self._connections = Connections(url, database, collection, schema.check, bulk)
        self._clock = clock
        self._server_clock = ServerClock(self._server_time, tick=0.001, samples=8)
        self._output_bound = OutputBound(log_lines, log_size)
        self._wake_counter = WakeCounter(self._connections)
        self._wakers: list[MongoWaker] = []
        self._cached_counts = counts.CachedCounts()

    @classmethod
    def of(cls, collection: Collection[Any], **options: Any) -> Self:
        """Return a store in the caller's collection, through the caller's client, which it never closes."""
        client = collection.database.client
        hosts = ",".join(f"{host}:{port}" for host, port in sorted(client.topology_description.server_descriptions()))
        store = cls(f"mongodb://{hosts}/{collection.database.name}", collection=collection.name, **options)
        store._connections.use(client)
        return store

    @property
    def url(self) -> str:
        return self._connections.url

    def prepare(self) -> None:
        with self._connections.open(checked=False) as collections:
            schema.migrate(collections)

    def check(self) -> None:
        with self._connections.open(checked=False) as collections:
            schema.check(collections)

    def drop(self) -> None:
        """Delete the collections with all tasks, for stores that were made for one test."""
        with self._connections.open(checked=False) as collections:
            schema.drop(collections)

    def now(self) -> datetime:
        return self._server_clock.now() if self._clock is None else to_millis(self._clock())

    # ── tasks ──

    def insert(self, tasks: Sequence[Task], *, tx: Any = None) -> list[Inserted | Existing]:
        if not tasks:
            return []
        with self._connections.open() as collections:
            if tx is not None:
                with translated(self.url, callers=True):
                    return inserting.insert_in(collections, tasks, tx)
            answers = without_unreadable(lambda: inserting.insert(collections, tasks), self._set_aside)
            if any(wakes(None, task) for task in tasks):
                self._wake()
                if not collections.has_members:  # a change stream reports inserts
                    self._wake_counter.increment(collections)
        return answers

    def claim(self, claim: Claim) -> list[Task]:
        def claim_once() -> list[Task]:
            with self._connections.open() as collections:
                return claiming.Claiming(collections, claim, self.now, self._stamp(), self._set_aside).run()

        return self._without_refused(claim_once)

    def swap(self, moves: Sequence[Move]) -> list[SwapAnswer]:
        return self.settle_and_claim(moves, None)[0]

    def settle_and_claim(self, moves: Sequence[Move], claim: Claim | None) -> tuple[list[SwapAnswer], list[Task]]:
        answers: list[SwapAnswer] = []
        if moves:
            with self._connections.open() as collections:
                answers = swapping.swap(self._connections, collections, moves, self._stamp(), self.now())
                if any_wakes(moves):
                    self._wake_counter.increment(collections)
                    # A worker need not be woken by its own round, but by other operations and by other workers.
                    if claim is None or len(self._wakers) > 1:
                        self._wake()
        return answers, [] if claim is None else self.claim(claim)

    def extend(self, leases: Sequence[Lease], lease_for: timedelta) -> list[Held | Lost]:
        if not leases:
            return []

        def extend() -> list[Held | Lost]:
            with self._connections.open() as collections:
                return extending.extend(collections, leases, lease_for, self._stamp())

        return self._without_refused(extend)

    def leases(self, *, pipeline: str | None = None, phase: str | None = None, limit: int) -> list[LeaseRecord]:
        return self._reading(lambda collections: searching.leases(collections, pipeline, phase, limit))

    def fetch(self, ids: Sequence[str]) -> list[Task]:
        if not ids:
            return []
        return self._reading(
            lambda collections: decoded(list(collections.tasks.find({"_id": {"$in": list(ids)}})), task_of, ID)
        )

    def find(self, where: Filter, *, limit: int = 100, order: Order = "newest", after: str | None = None) -> Page:
        return self._reading(lambda collections: searching.find(collections, where, limit, order, after))

    def due(self, pipeline: str, phase: str, by: datetime, limit: int) -> list[Task]:
        return self._reading(
            lambda collections: decoded(list(claiming.due(collections, pipeline, phase, by, limit)), task_of, ID)
        )

    def claimable(self, want: PhaseClaim, by: datetime) -> int:
        return self._without_refused(
            lambda: self._reading(lambda collections: claiming.claimable(collections, want, by))
        )

    def ready(self, phases: AbstractSet[tuple[str, str]], by: datetime) -> list[tuple[str, str]]:
        with self._connections.open() as collections:
            pipelines = claiming.pipelines_waiting(collections)
        return [phase for phase in phases if phase[0] in pipelines]

    def count(self, where: Filter) -> list[TaskCount]:
        return self._reading(lambda collections: counts.count(collections, where))

    def store_counts(self) -> StoreCounts:
        return self._reading(lambda collections: self._cached_counts(collections, self.now()))

    def search(
        self,
        where: Filter,
        *,
        limit: int = 100,
        order: Order = "newest",
        after: str | None = None,
        within: timedelta,
    ) -> Search:
        return self._reading(lambda collections: searching.search(collections, where, limit, order, after, within))

    def inspect(self, *, quick: bool = False) -> list[Finding]:
        return maintenance.inspect(self._connections)

    def sizes(self) -> list[StoredSize]:
        return maintenance.sizes(self._connections)

    def migration(self) -> Migration:
        return maintenance.migration(self._connections)

    def backup(self, path: Path, progress: Callable[[float], None]) -> None:
        raise BadInput(
            "MongoDB is backed up with its own tools, of everything at once",
            fix=f"mongodump --uri <url> --archive={path}",
            field="path",
        )

    # ── unreadable documents ──

    def _reading(self, read: Callable[[Collections], T]) -> T:
        def once() -> T:
            with self._connections.open() as collections:
                return read(collections)

        return without_unreadable(once, self._set_aside)

    def _set_aside(self, ids: Sequence[Any]) -> int:
        with self._connections.open() as collections:
            count = quarantine.set_aside(collections, ids, self.now())
            if count:
                self._wake_counter.increment(collections)
                self._wake()
        return count

    def _without_refused(self, write: Callable[[], T]) -> T:
        """Call `write`; if one document stops it, quarantine the unreadable ones and call it again.

        A document stops it by the server's refusal, or by a value of a type that the code does not expect.
        """
        while True:
            try:
                return write()
            except (RowRefused, TypeError, ValueError, KeyError, AttributeError):
                with self._connections.open() as collections:
                    found = quarantine.suspects(collections)
                if not self._set_aside(found):
                    raise

    # ── removal ──

    def remove(self, tasks: Sequence[Task]) -> int:
        if not tasks:
            return 0
        with self._connections.open() as collections:
            gone = collections.tasks.bulk_write(
                [DeleteOne({"_id": task.task_id, "version": task.version}) for task in tasks], ordered=False
            ).deleted_count
            ids = {task.task_id for task in tasks}
            ids -= {row["_id"] for row in collections.tasks.find({"_id": {"$in": list(ids)}}, {"_id": 1})}
            task_log.remove(collections, ids)
        return gone

    def remove_log(self, task_ids: Sequence[str]) -> None:
        with self._connections.open() as collections:
            task_log.remove(collections, task_ids)

    # ── output, notes ──

    def append_log(self, lines: Sequence[LogLine]) -> None:
        with self._connections.open() as collections:
            task_log.append(collections, lines, self._output_bound)

    def read_log(self, task_id: str, *, after: int = 0, limit: int = 1000, tail: int | None = None) -> LogPage:
        with self._connections.open() as collections:
            return task_log.read_page(collections, task_id, after, limit, tail)

    def notes(self, kind: str, *, since: str = "", before: str = "") -> list[Note]:
        with self._connections.open() as collections:
            return notes.read_all(collections, kind, since, before)

    def write_notes(self, given: Sequence[Note]) -> list[bool]:
        with self._connections.open() as collections:
            return notes.write(self._connections, collections, given, self.now())

    def drop_notes(self, kind: str, names: Sequence[str]) -> int:
        with self._connections.open() as collections:
            return notes.drop(collections, kind, names)

    # ── waking, closing ──

    def waker(self) -> MongoWaker:
        waker = MongoWaker(self._connections, self._wakers.remove)
        self._wakers.append(waker)
        return waker

    def close(self) -> None:
        self._wake_counter.close()
        self._connections.close()

    def count_statements(self) -> Callable[[], int]:
        """Count the commands that the client sends from now on."""
        return self._connections.count_commands()

    def _wake(self) -> None:
        """Wake the workers of this process."""
        for waker in list(self._wakers):
            waker.poke()

    def _stamp(self) -> Stamp:
        return SERVER_NOW if self._clock is None else {"$literal": self.now()}

    def _server_time(self) -> float:
        with self._connections.open(checked=False) as collections:
            server_time = collections.client.admin.command("hello").get("localTime")
            if server_time is None:
                (row,) = collections.database.aggregate([{"$documents": [{"now": "$$NOW"}]}])
                server_time = row["now"]
        return float(server_time.replace(tzinfo=UTC).timestamp())
