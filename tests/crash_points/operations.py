"""The operations that are interrupted: the state before, the call, what must hold afterwards, and the call again."""

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from onerow import Filter, Pipeline, Queue, Status, Task
from onerow.core.addition import Addition
from onerow.engine.queue.claim import held_lease
from onerow.engine.queue.move import move
from onerow.ports import Lease, LogLine
from onerow.wiring import open_store

COUNT = 4
LEASE = "30s"


class Interrupted:
    """An operation on tasks of its own pipeline, so that many can be tried in one database."""

    def __init__(self, name: str = "jobs", folder: Path | None = None) -> None:
        self.pipeline: Pipeline = Pipeline(name)
        self.folder = folder  # for files of its own

        @self.pipeline.phase(concurrency=COUNT)
        def first(job: int) -> int:
            return job + 1

        @self.pipeline.phase
        def second(job: int) -> int:
            return job + 2

    def before(self, queue: Queue) -> None:
        """Bring the store to the state before the operation."""
        queue.publish(self.pipeline)
        self.add(queue)

    def add(self, queue: Queue) -> None:
        queue.add_many(self.pipeline, [Addition(payload=number, task_id=self.id(number)) for number in range(COUNT)])

    def ready(self, queue: Queue) -> Callable[[], object]:
        """Return the call that is interrupted."""
        raise NotImplementedError

    def check(self, queue: Queue) -> None:
        """Check that each row is whole, and that the operation happened or did not happen to it."""
        raise NotImplementedError

    def again(self, queue: Queue) -> None:
        """Do it again; the state must be right then."""
        raise NotImplementedError

    def id(self, number: int) -> str:
        return f"{self.pipeline.name}-{number}"

    def rows(self, queue: Queue) -> list[Task]:
        found = queue.find(Filter(pipeline=self.pipeline.name), limit=1000, order="oldest").tasks
        return sorted(found, key=lambda task: task.task_id)

    def claim(self, queue: Queue) -> list[Task]:
        return [lease.task for lease in queue.claim(self.pipeline, "first", limit=COUNT, lease_for=LEASE, worker="one")]


class Add(Interrupted):
    def before(self, queue: Queue) -> None:
        queue.publish(self.pipeline)

    def ready(self, queue: Queue) -> Callable[[], object]:
        return lambda: self.add(queue)

    def check(self, queue: Queue) -> None:
        for row in self.rows(queue):
            assert (row.status, row.phase, self.id(row.payload)) == (Status.WAITING, "first", row.task_id)

    def again(self, queue: Queue) -> None:
        self.add(queue)
        assert [row.payload for row in self.rows(queue)] == list(range(COUNT))


class ClaimTasks(Interrupted):
    def ready(self, queue: Queue) -> Callable[[], object]:
        return lambda: queue.claim(self.pipeline, "first", limit=COUNT, lease_for="100ms", worker="lost")

    def check(self, queue: Queue) -> None:
        rows = self.rows(queue)
        assert len(rows) == COUNT
        for row in rows:
            if row.status is Status.PROCESSING:
                assert (row.leased_by, row.attempt) == ("lost", 1)
                assert row.leased_until
                assert row.slot is not None
            else:
                assert (row.status, row.leased_by, row.attempt, row.slot) == (Status.WAITING, None, 0, None)
        slots = [row.slot for row in rows if row.slot is not None]
        assert len(set(slots)) == len(slots)

    def again(self, queue: Queue) -> None:
        tokens = {row.task_id: row.token for row in self.rows(queue)}
        time.sleep(0.12)  # the leases of the lost claim end
        queue.rescue(self.pipeline.name)
        claimed = self.claim(queue)
        assert len(claimed) == COUNT
        assert all(task.token > tokens[task.task_id] for task in claimed)


class Settle(Interrupted):
    def before(self, queue: Queue) -> None:
        super().before(queue)
        self.claim(queue)

    def ready(self, queue: Queue) -> Callable[[], object]:
        leases = [held_lease(queue, row.task_id, row.token) for row in self.rows(queue)]
        return lambda: [lease.complete(lease.payload + 1) for lease in leases]

    def check(self, queue: Queue) -> None:
        rows = self.rows(queue)
        assert len(rows) == COUNT
        for row in rows:
            if row.status is Status.PROCESSING:
                assert (row.phase, row.results, row.history) == ("first", {}, [])
            else:
                self._check_settled(row)

    def again(self, queue: Queue) -> None:
        for row in self.rows(queue):
            held_lease(queue, row.task_id, row.token).complete(row.payload + 1)
        for row in self.rows(queue):
            self._check_settled(row)

    def _check_settled(self, row: Task) -> None:
        assert (row.status, row.phase, row.results) == (Status.WAITING, "second", {"first": row.payload + 1})
        assert [entry.what for entry in row.history] == ["advanced"]
        assert (row.leased_by, row.slot) == (None, None)


class Extend(Interrupted):
    def before(self, queue: Queue) -> None:
        super().before(queue)
        self.claim(queue)

    def ready(self, queue: Queue) -> Callable[[], object]:
        leases = [Lease(row.task_id, row.token) for row in self.rows(queue)]
        return lambda: queue.store.extend(leases, timedelta(hours=5))

    def check(self, queue: Queue) -> None:
        rows = self.rows(queue)
        assert len(rows) == COUNT
        for row in rows:
            assert (row.status, row.leased_by, row.attempt) == (Status.PROCESSING, "one", 1)
            assert row.leased_until

    def again(self, queue: Queue) -> None:
        self.ready(queue)()
        soon = queue.store.now() + timedelta(hours=4)
        assert all(row.leased_until and row.leased_until > soon for row in self.rows(queue))


class Purge(Interrupted):
    def before(self, queue: Queue) -> None:
        super().before(queue)
        for number in range(COUNT):
            queue.cancel(self.id(number))
        now = queue.store.now()
        lines = [
            LogLine(task_id=self.id(number), at=now, text="a line", attempt=1, phase="first", level="info")
            for number in range(COUNT)
        ]
        queue.store.append_log(lines)
        queue.add(self.pipeline, 99, task_id=self.id(99))

    def ready(self, queue: Queue) -> Callable[[], object]:
        return lambda: queue.purge(older_than="0s", pipeline=self.pipeline.name)

    def check(self, queue: Queue) -> None:
        # The lines first: a server may still commit the purge whose connection was cut, and then both are gone.
        lines = {self.id(number): queue.store.read_log(self.id(number)).lines for number in range(COUNT)}
        left = {row.task_id: row for row in self.rows(queue)}
        assert left[self.id(99)].status is Status.WAITING
        for task_id, own in lines.items():
            if task_id in left:
                assert left[task_id].status is Status.CANCELLED
                assert len(own) == 1

    def again(self, queue: Queue) -> None:
        self.ready(queue)()
        assert [row.task_id for row in self.rows(queue)] == [self.id(99)]


class Move(Interrupted):
    """Moves the queue of a SQLite file into the store."""

    @property
    def source(self) -> str:
        assert self.folder is not None
        return f"sqlite:///{self.folder / (self.pipeline.name + '.source.db')}"

    def before(self, queue: Queue) -> None:
        with_source = Queue(self.source)
        super().before(with_source)
        with_source.cancel(self.id(0))
        with_source.set_limit(self.pipeline, "first", concurrency=3)
        with_source.close()

    def ready(self, queue: Queue) -> Callable[[], object]:
        return lambda: self._move(queue)

    def _move(self, queue: Queue) -> None:
        source = open_store(self.source)
        source.prepare()
        try:
            move(source, queue.store, wait=lambda seconds: None)
        finally:
            source.close()

    def check(self, queue: Queue) -> None:
        source = Queue(self.source)
        originals = {row.task_id: row for row in self.rows(source)}
        source.close()
        assert len(originals) == COUNT  # nothing is taken away from the source
        for row in self.rows(queue):
            assert (row.payload, row.status) == (originals[row.task_id].payload, originals[row.task_id].status)

    def again(self, queue: Queue) -> None:
        self._move(queue)
        assert [row.task_id for row in self.rows(queue)] == [self.id(number) for number in range(COUNT)]
        self.check(queue)


class Migrate(Interrupted):
    """Creates the tables in an empty database."""

    def before(self, queue: Queue) -> None:
        """Nothing is there."""

    def ready(self, queue: Queue) -> Callable[[], object]:
        return lambda: queue.store  # its first use creates the tables

    def check(self, queue: Queue) -> None:
        """The database is empty or has all tables: opening it creates what is missing."""
        assert self.rows(queue) == []

    def again(self, queue: Queue) -> None:
        queue.store.check()
        super().before(queue)
        assert len(self.claim(queue)) == COUNT


OPERATIONS: dict[str, type[Interrupted]] = {
    "add": Add,
    "claim": ClaimTasks,
    "settle": Settle,
    "extend": Extend,
    "purge": Purge,
    "migrate": Migrate,
    "move": Move,
}
