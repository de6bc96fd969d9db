"""The Store on PostgreSQL: every act is one short transaction, sent in one piece and answered in one."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

from psycopg.types.numeric import Int8

from onerow.core.corruption import UnreadableRows, without_unreadable
from onerow.core.errors import BadInput, StoreUnavailable
from onerow.core.task import Task
from onerow.core.times import to_millis
from onerow.ports import (
    Claim,
    Existing,
    Finding,
    Held,
    Inserted,
    Lease,
    LogLine,
    Lost,
    Migration,
    Move,
    Note,
    SwapAnswer,
)
from onerow.stores.postgres import (
    caller_transaction,
    connection_url,
    counts,
    inserting,
    maintenance,
    notes,
    schema,
    task_log,
)
from onerow.stores.postgres.clock import ServerClock
from onerow.stores.postgres.connections import Connection, Connections
from onerow.stores.postgres.fast import insert_new
from onerow.stores.postgres.fast.binary import Bigs, Texts, column, moment
from onerow.stores.postgres.fast.low_water import LowWaterMarks
from onerow.stores.postgres.reading import Reading, T
from onerow.stores.postgres.rounds import Rounds
from onerow.stores.postgres.statements import statement
from onerow.stores.postgres.transactions import Transactions
from onerow.stores.postgres.waker import PostgresWaker

_MILLI = timedelta(milliseconds=1)
_REPLICA_RETRIED_AFTER = 5.0  # seconds for which a replica that was down is not asked again


class PostgresStore(Reading):
    """See ports.Store. Without a `clock` the server's own counts; a pooler in between is noticed and respected.

    `replica`: a server to read from where a few moments' delay don't matter, see `for_views`.
    `listen`: where to LISTEN if `url` leads through a pooler. `patience`: seconds to wait for a free connection.
    """

    _door: Connections

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        clock: Callable[[], datetime] | None = None,
        replica: str | None = None,
        listen: str | None = None,
        pool_size: int | None = None,
        patience: float = 30.0,
        log_lines: int = 10_000,
        log_size: int = 1_000_000,
    ) -> None:
        where = connection_url.parse(url)
        options = where.options
        name = schema_name(schema or options.get("schema", "onerow"))
        size = where.pool_size if pool_size is None else connection_url.check_pool_size(pool_size)
        super().__init__(Connections(where, size=size, patience=patience), name)
        self._clock = clock
        self._server_clock = ServerClock(self._ask_time)
        self._hints = LowWaterMarks()
        self._transaction = Transactions(name, self._server_clock)
        self._turns = Rounds(self._door, name, self._transaction, self._hints, self._own_now, self.now)
        self._bookkeeper = counts.CounterUpdater(self._door, name)
        self._bounds = task_log.Bounds(log_lines, log_size)
        self._wakers: list[PostgresWaker] = []
        replica = replica or options.get("replica")
        listen = listen or options.get("listen")
        self._replica = (
            _ReplicaDoor(Connections(connection_url.parse(replica), size=size, patience=patience), self._door)
            if replica
            else None
        )
        self._ears = Connections(connection_url.parse(listen), size=1, patience=patience) if listen else None

    @property
    def schema(self) -> str:
        return self._schema

    def prepare(self) -> None:
        schema.migrate(self._door, self._schema)

    def check(self) -> None:
        schema.check(self._door, self._schema)

    def migration(self) -> Migration:
        """What `prepare` would do; looks and creates nothing."""
        stored, min_code = self._door.read(lambda connection: schema.versions(connection, self._schema))
        return Migration(stored, schema.SCHEMA, "".join(schema.pending(stored, self._schema)), min_code)

    def inspect(self) -> list[Finding]:
        """Would the promises hold here? Looks and changes nothing."""
        return maintenance.inspect(
            self._door,
            self._schema,
            self.migration(),
            self._bookkeeper,
            can_listen=self._ears is not None or not self._door.is_pooled,
        )

    def repair(self) -> None:
        """Set the counts of ended tasks to what is there."""
        self._bookkeeper.repair()

    def backup(self, path: Path, progress: Callable[[float], None]) -> None:
        """The server's own tools do that better."""
        raise BadInput(
            f"{self.url} has tools of its own for copies; use: pg_dump --schema={self._schema}, or continuous archiving",
            field="store",
        )

    def now(self) -> datetime:
        return to_millis(self._clock()) if self._clock is not None else self._server_clock.now()

    def for_views(self) -> "PostgresStore | OnReplica":
        """The same store for those who look: rows come from the replica, if there is one."""
        return self if self._replica is None else OnReplica(self, self._replica, self._schema)

    # ── tasks ──

    def insert(self, tasks: Sequence[Task], *, tx: Any = None) -> list[Inserted | Existing]:
        if not tasks:
            return []
        if tx is not None:
            return caller_transaction.insert(tx, self._schema, tasks, self.url)
        answers = without_unreadable(
            lambda: self._door.write(lambda connection: self._insert(connection, tasks)), self._set_aside
        )
        self._hints.put(tasks)
        self._poke_the_deaf()
        return answers

    async def insert_async(self, tasks: Sequence[Task], tx: Any) -> list[Inserted | Existing]:
        """As `insert` with `tx`, for a connection or session of an event loop."""
        return await caller_transaction.insert_async(tx, self._schema, tasks, self.url) if tasks else []

    def claim(self, claim: Claim) -> list[Task]:
        return self.settle_and_claim((), claim)[1]

    def swap(self, moves: Sequence[Move]) -> list[SwapAnswer]:
        return self.settle_and_claim(moves, None)[0]

    def settle_and_claim(self, moves: Sequence[Move], claim: Claim | None) -> tuple[list[SwapAnswer], list[Task]]:
        done = self._turns.run(moves, claim)
        # Only a write that gives work: a claim that woke its own worker would be followed by another at once.
        if any(move.wakes for move in moves):
            self._poke_the_deaf()
        self._bookkeeper.tick()
        return done

    def extend(self, leases: Sequence[Lease], lease_for: timedelta) -> list[Held | Lost]:
        if not leases:
            return []
        ordered = sorted(leases, key=lambda lease: lease.task_id)
        given = {
            "now": self._own_now(),
            "lease": Int8(lease_for // _MILLI),
            "ids": column(Texts, [lease.task_id for lease in ordered]),
            "tokens": column(Bigs, [lease.token for lease in ordered]),
        }

        def extend(connection: Connection) -> list[tuple[Any, ...]]:
            with self._transaction(connection):
                cursor = connection.execute(statement("extend", self._schema), given, binary=True)
            return cursor.fetchall()

        held = {
            Lease(task_id, token): Held(task_id, version, moment(until), asked)
            for task_id, token, version, until, asked in self._turns.without_refused(lambda: self._door.write(extend))
        }
        return [held.get(lease) or Lost(lease.task_id) for lease in leases]

    def remove(self, tasks: Sequence[Task]) -> int:
        if not tasks:
            return 0
        ordered = sorted(tasks, key=lambda task: task.task_id)
        given = {
            "ids": column(Texts, [task.task_id for task in ordered]),
            "versions": column(Bigs, [task.version for task in ordered]),
        }

        def remove(connection: Connection) -> int:
            with self._transaction(connection):
                gone = connection.execute(statement("remove", self._schema), given, binary=True)
                task_log.remove(connection, self._schema, given["ids"])
            return len(gone.fetchall())

        return self._door.write(remove)

    # ── output, notes ──

    def append_log(self, lines: Sequence[LogLine]) -> None:
        def append(connection: Connection) -> None:
            with self._transaction(connection):
                task_log.append(connection, self._schema, lines, self._bounds)

        if lines:
            self._door.write(append)

    def write_notes(self, given: Sequence[Note]) -> list[bool]:
        def write(connection: Connection) -> list[bool]:
            with self._transaction(connection):
                answers = notes.write(connection, self._schema, given, self._own_now())
            return [answer.rowcount == 1 for answer in answers]

        return self._door.write(write) if given else []

    def drop_notes(self, kind: str, names: Sequence[str]) -> int:
        return self._door.write(lambda connection: notes.drop(connection, self._schema, kind, names))

    # ── waking, closing ──

    def waker(self) -> PostgresWaker:
        door = self._ears or (None if self._door.is_pooled else self._door)
        waker = PostgresWaker(None if door is None else door.open, f"onerow.{self._schema}", self._wakers.remove)
        self._wakers.append(waker)
        return waker

    def close(self) -> None:
        for door in (self._door, self._replica, self._ears):
            if door is not None:
                door.close()

    def count_statements(self) -> Callable[[], int]:
        """A counter of the statements sent from now on, BEGIN and COMMIT aside."""
        return self._door.count_statements()

    # ── pieces ──

    def _set_aside(self, ids: Sequence[str]) -> int:
        return self._turns.set_aside(ids)

    def _poke_the_deaf(self) -> None:
        for waker in self._wakers:
            if not waker.hears:
                waker.poke()

    def _insert(self, connection: Connection, tasks: Sequence[Task]) -> list[Inserted | Existing]:
        if insert_new.insert(connection, self._schema, tasks):
            return [Inserted(task) for task in tasks]
        with connection.cursor(binary=True) as cursor:
            if len(tasks) <= insert_new.CHUNK:
                return inserting.insert(cursor, self._schema, tasks)
            with connection.transaction():
                return inserting.insert(cursor, self._schema, tasks)

    def _own_now(self) -> datetime | None:
        """The time by a clock of ours; None: the server shall look at its own."""
        return None if self._clock is None else to_millis(self._clock())

    def _ask_time(self) -> int:
        ((said,),) = self._door.read(lambda c: c.execute("SELECT clock_timestamp()", binary=True).fetchall())
        return int(said)


class _ReplicaDoor:
    """Reads from the replica, and from the primary while the replica cannot be reached."""

    def __init__(self, replica: Connections, primary: Connections) -> None:
        self.address = primary.address
        self._replica = replica
        self._primary = primary
        self._down_until = 0.0

    def read(self, work: Callable[[Connection], T]) -> T:
        """See Door.read."""
        if monotonic() >= self._down_until:
            try:
                return self._replica.read(work)
            except StoreUnavailable:
                self._down_until = monotonic() + _REPLICA_RETRIED_AFTER
        return self._primary.read(work)

    def close(self) -> None:
        self._replica.close()


class OnReplica(Reading):
    """Rows from a replica, a few moments old; the time, and whatever is written, by the store itself."""

    def __init__(self, store: PostgresStore, replica: _ReplicaDoor, name: str) -> None:
        super().__init__(replica, name)
        self._store = store

    @property
    def url(self) -> str:
        return self._store.url

    def _reading(self, read: Callable[[Connection], T]) -> T:
        try:
            return self._door.read(read)
        except UnreadableRows:  # which can only be set aside where there is something to write to
            return self._store._reading(read)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


schema_name = schema.check_name
