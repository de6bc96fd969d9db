"""ports.Store on PostgreSQL: each operation is one short transaction, sent in one pipeline."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from psycopg.types.numeric import Int8

from onerow.core.corruption import without_unreadable
from onerow.core.errors import BadInput, RowRefused
from onerow.core.output_bound import OutputBound
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
    StoredSize,
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
from onerow.stores.postgres.administration import Administration
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.fast import insert_new
from onerow.stores.postgres.fast.binary import Bigs, Texts, column, moment
from onerow.stores.postgres.fast.low_water import LowWaterMarks
from onerow.stores.postgres.pipelining import Connection
from onerow.stores.postgres.reading import Reading
from onerow.stores.postgres.rounds import Rounds
from onerow.stores.postgres.statements import statement
from onerow.stores.postgres.tables import Tables
from onerow.stores.postgres.waker import PostgresWaker
from onerow.stores.shared.waking import any_wakes

_MILLI = timedelta(milliseconds=1)


class PostgresStore(Reading, Administration, Tables):
    """See ports.Store. Without a `clock` it uses the server's clock; it detects a connection pooler such as PgBouncer.

    `listen`: URL to LISTEN on if `url` goes through a pooler. `patience`: seconds to wait for a free connection.
    """

    _connections: Connections

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        clock: Callable[[], datetime] | None = None,
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
        self._low_water = LowWaterMarks()
        self._rounds = Rounds(self._connections, name, self._low_water, self._own_now, self.now)
        self._counter_updater = counts.CounterUpdater(self._connections, name)
        self._output_bound = OutputBound(log_lines, log_size)
        self._callers_database = caller_transaction.CallersDatabase(self._connections)
        self._wakers: list[PostgresWaker] = []
        listen = listen or options.get("listen")
        self._listen_connections = (
            Connections(connection_url.parse(listen), size=1, patience=patience) if listen else None
        )

    @property
    def schema(self) -> str:
        return self._schema

    def prepare(self) -> None:
        schema.migrate(self._connections, self._schema)

    def check(self) -> None:
        schema.check(self._connections, self._schema)

    def drop(self) -> None:
        """Delete the schema with all tasks, for stores that were made for one test."""
        schema.drop(self._connections, self._schema)

    def migration(self) -> Migration:
        """Return what `prepare` would do, without changing the database."""
        stored, min_code = self._connections.read(lambda connection: schema.versions(connection, self._schema))
        return Migration(stored, schema.SCHEMA, "".join(schema.pending(stored, self._schema)), min_code)

    def inspect(self, *, quick: bool = False) -> list[Finding]:
        """Check server, settings, schema and counters, without changing the database."""
        return maintenance.inspect(
            self._connections,
            self._schema,
            self.migration(),
            self._counter_updater,
            can_listen=self._listen_connections is not None or not self._connections.is_pooled,
            quick=quick,
        )

    def sizes(self) -> list[StoredSize]:
        return maintenance.sizes(self._connections, self._schema)

    def repair(self) -> None:
        """Recompute the counters of ended tasks."""
        self._counter_updater.repair()

    def backup(self, path: Path, progress: Callable[[float], None]) -> None:
        """Raise BadInput: PostgreSQL has its own backup tools."""
        raise BadInput(
            f"{self.url}: PostgreSQL is backed up with its own tools",
            fix=f"pg_dump --schema={self._schema}, or continuous archiving",
            field="store",
        )

    def now(self) -> datetime:
        return to_millis(self._clock()) if self._clock is not None else self._connections.clock.now()

    # ── tasks ──

    def insert(self, tasks: Sequence[Task], *, tx: Any = None) -> list[Inserted | Existing]:
        if not tasks:
            return []
        if tx is not None:
            return caller_transaction.insert(tx, self._schema, tasks, self.url, self._callers_database)
        answers = without_unreadable(
            lambda: self._connections.write(lambda connection: self._insert(connection, tasks)), self._quarantine
        )
        self._low_water.invalidate(tasks)
        self._poke_unconnected_wakers()
        return answers

    async def insert_async(self, tasks: Sequence[Task], tx: Any) -> list[Inserted | Existing]:
        """Like `insert` with `tx`, for an async connection or session."""
        if not tasks:
            return []
        return await caller_transaction.insert_async(tx, self._schema, tasks, self.url, self._callers_database)

    def claim(self, claim: Claim) -> list[Task]:
        return self.settle_and_claim((), claim)[1]

    def swap(self, moves: Sequence[Move]) -> list[SwapAnswer]:
        return self.settle_and_claim(moves, None)[0]

    def settle_and_claim(self, moves: Sequence[Move], claim: Claim | None) -> tuple[list[SwapAnswer], list[Task]]:
        try:
            done = self._rounds.run(moves, claim)
        except RowRefused:
            done = self._rounds.run_singly(moves, claim)
        # Only moves that create work wake: a claim that wakes its own worker would cause another claim at once.
        if any_wakes(moves):
            self._poke_unconnected_wakers()
        self._counter_updater.tick()
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
            with self._connections.transaction(connection):
                cursor = connection.execute(statement("extend", self._schema), given, binary=True)
            return cursor.fetchall()

        held = {
            Lease(task_id, token): Held(task_id, version, moment(until), asked)
            for task_id, token, version, until, asked in self._rounds.without_refused(
                lambda: self._connections.write(extend)
            )
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
            with self._connections.transaction(connection):
                gone = connection.execute(statement("remove", self._schema), given, binary=True)
                task_log.remove(connection, self._schema, given["ids"])
            return len(gone.fetchall())

        return self._connections.write(remove)

    def remove_log(self, task_ids: Sequence[str]) -> None:
        def remove(connection: Connection) -> None:
            with self._connections.transaction(connection):
                task_log.remove(connection, self._schema, column(Texts, list(task_ids)))

        if task_ids:
            self._connections.write(remove)

    # ── task output, notes ──

    def append_log(self, lines: Sequence[LogLine]) -> None:
        def append(connection: Connection) -> None:
            with self._connections.transaction(connection):
                task_log.append(connection, self._schema, lines, self._output_bound)

        if lines:
            self._connections.write(append)

    def write_notes(self, given: Sequence[Note]) -> list[bool]:
        def write(connection: Connection) -> list[bool]:
            with self._connections.transaction(connection):
                answers = notes.write(connection, self._schema, given, self._own_now())
            return [answer.rowcount == 1 for answer in answers]

        return self._connections.write(write) if given else []

    def drop_notes(self, kind: str, names: Sequence[str]) -> int:
        return self._connections.write(lambda connection: notes.drop(connection, self._schema, kind, names))

    # ── waking, closing ──

    def waker(self) -> PostgresWaker:
        listen = self._listen_connections or (None if self._connections.is_pooled else self._connections)
        waker = PostgresWaker(None if listen is None else listen.open, f"onerow.{self._schema}", self._wakers.remove)
        self._wakers.append(waker)
        return waker

    def close(self) -> None:
        for each in (self._connections, self._listen_connections):
            if each is not None:
                each.close()

    def count_statements(self) -> Callable[[], int]:
        """Start counting sent statements, without BEGIN and COMMIT; return the counter."""
        return self._connections.count_statements()

    # ── private ──

    def _poke_unconnected_wakers(self) -> None:
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
        """Return the time of the injected clock; None means that SQL uses the server's clock."""
        return None if self._clock is None else to_millis(self._clock())


schema_name = schema.check_name
