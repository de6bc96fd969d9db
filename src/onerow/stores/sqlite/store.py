"""The Store on SQLite: every write is a short transaction under the file's write lock."""

import sqlite3
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from onerow.core.corruption import decoded, without_unreadable
from onerow.core.errors import RowRefused, StoreError
from onerow.core.filters import Filter, Order
from onerow.core.output_bound import OutputBound
from onerow.core.status import PROCESSING
from onerow.core.task import FIELDS, Task, columns_of
from onerow.core.times import spell, to_millis
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
    Stale,
    StoreCounts,
    StoredSize,
    SwapAnswer,
    TaskCount,
)
from onerow.stores.shared.waking import any_wakes
from onerow.stores.sqlite import (
    claiming,
    counts,
    maintenance,
    notes,
    quarantine,
    schema,
    searching,
    task_log,
)
from onerow.stores.sqlite.bulk_write import batches, insert_one_sql, insert_sql
from onerow.stores.sqlite.caller_transaction import callers_cursor
from onerow.stores.sqlite.claimable import claimable
from onerow.stores.sqlite.connections import FLOOR, Connections, Profile, translated
from onerow.stores.sqlite.rows import COLUMNS, ID, row_of, task_of
from onerow.stores.sqlite.statements import statement
from onerow.stores.sqlite.swapping import Swapping
from onerow.stores.sqlite.tables import Tables
from onerow.stores.sqlite.waker import SqliteWaker

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


def _wall_clock() -> datetime:
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


class SqliteStore(Tables):
    """See ports.Store. `profile='durable'` survives a power cut; 'fast' may lose the last commits."""

    def __init__(
        self,
        path: str | Path,
        *,
        profile: Profile = "durable",
        clock: Callable[[], datetime] = _wall_clock,
        log_lines: int = 10_000,
        log_size: int = 1_000_000,
    ) -> None:
        if sqlite3.sqlite_version_info < FLOOR:
            raise StoreError(
                f"SQLite {sqlite3.sqlite_version} is too old; onerow needs 3.35 or later",
                fix="use a newer Python, or one that is linked to a newer SQLite",
            )
        if str(path) in ("", ":memory:"):
            raise StoreError("SQLite needs a file that workers can share", fix="for tests use memory://")
        self.path = Path(path).absolute()
        self._clock = clock if clock is _wall_clock else lambda: to_millis(clock())
        self._connections = Connections(self.path, profile)
        self._output_bound = OutputBound(log_lines, log_size)
        self._wakers: list[SqliteWaker] = []
        self._cursors: claiming.Cursors = {}

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def prepare(self) -> None:
        schema.migrate(self._connections)

    def check(self) -> None:
        schema.check(self._connections)

    def now(self) -> datetime:
        return self._clock()

    # ── tasks ──

    def insert(self, tasks: Sequence[Task], *, tx: Any = None) -> list[Inserted | Existing]:
        if tx is not None:
            with translated(self.path, callers=True):
                return _insert(callers_cursor(tx, self.path), tasks)
        if len(tasks) == 1 and not tasks[0].ended and self._connections.execute(*_insert_of(tasks[0])):
            answers: list[Inserted | Existing] = [Inserted(tasks[0])]
        else:
            answers = self._without_unreadable(lambda: self._insert(tasks))
        if any(wakes(None, task) for task in tasks):
            self._wake()
        return answers

    def _insert(self, tasks: Sequence[Task]) -> list[Inserted | Existing]:
        with self._connections.write() as connection:
            return _insert(connection.cursor(), tasks)

    def claim(self, claim: Claim) -> list[Task]:
        return self.settle_and_claim((), claim)[1]

    def swap(self, moves: Sequence[Move]) -> list[SwapAnswer]:
        return self.settle_and_claim(moves, None)[0]

    def settle_and_claim(self, moves: Sequence[Move], claim: Claim | None) -> tuple[list[SwapAnswer], list[Task]]:
        left, aside = moves, set[Any]()
        while True:
            try:
                answers, claimed_rows = self._round(left, claim)
                break
            except RowRefused:
                more = self._set_suspects_aside()
                if not more:
                    raise
                aside |= more
                left = [move for move in moves if move.before.task_id not in aside]
        if aside:
            others = iter(answers)
            answers = [Stale(move.before.task_id) if move.before.task_id in aside else next(others) for move in moves]
        tasks: list[Task] = []
        unreadable: list[Any] = []
        for claimed in claimed_rows:
            good, bad = claimed.tasks()
            tasks += good
            unreadable += bad
        if unreadable:
            self._set_aside(unreadable)  # rows that the claim's own write made readable are returned below
            tasks += [task for task in self.fetch(unreadable) if task.status is PROCESSING]
        return answers, tasks

    def _round(self, moves: Sequence[Move], claim: Claim | None) -> tuple[list[SwapAnswer], list[claiming.ClaimedRows]]:
        swapping = Swapping(moves)
        with self._connections.write() as connection:
            answers = swapping.write(connection, self.now())
            claimed_rows = claiming.claim(connection, claim, self.now(), self._cursors) if claim is not None else []
        # A worker need not be woken by its own round, but by other operations and by other workers of this process.
        if self._wakers and (claim is None or len(self._wakers) > 1) and any_wakes(moves):
            self._wake()
        return answers, claimed_rows

    def extend(self, leases: Sequence[Lease], lease_for: timedelta) -> list[Held | Lost]:
        asked = _encode([(lease.task_id, lease.token) for lease in leases]).decode()
        rows, until = self._without_unreadable(lambda: self._extend(asked, lease_for))
        held = {(task_id, token): Held(task_id, version, until, bool(asked)) for task_id, token, version, asked in rows}
        return [held.get((lease.task_id, lease.token)) or Lost(lease.task_id) for lease in leases]

    def _extend(self, leases: str, lease_for: timedelta) -> tuple[list[tuple[str, int, int, int]], datetime]:
        with self._connections.write() as connection:
            now = self.now()  # read after the lock was taken: the wait may have been longer than the lease
            until = now + lease_for
            given = {"until": spell(until), "now": spell(now), "leases": leases}
            return connection.execute(statement("extend"), given).fetchall(), until

    def leases(self, *, pipeline: str | None = None, phase: str | None = None, limit: int) -> list[LeaseRecord]:
        return self._reading(lambda connection: searching.leases(connection, pipeline, phase, limit))

    def fetch(self, ids: Sequence[str]) -> list[Task]:
        sql = f"SELECT {COLUMNS} FROM task_queue WHERE task_id IN (SELECT value FROM json_each(?))"
        given = (_encode(list(ids)).decode(),)
        return self._reading(lambda connection: decoded(connection.execute(sql, given).fetchall(), task_of, ID))

    def find(self, where: Filter, *, limit: int = 100, order: Order = "newest", after: str | None = None) -> Page:
        return self._reading(lambda connection: searching.find(connection, where, limit, order, after))

    def due(self, pipeline: str, phase: str, by: datetime, limit: int) -> list[Task]:
        return self._reading(lambda connection: claiming.due(connection, pipeline, phase, by, limit))

    def claimable(self, want: PhaseClaim, by: datetime) -> int:
        return self._reading(lambda connection: claimable(connection, want, by))

    def ready(self, phases: AbstractSet[tuple[str, str]], by: datetime) -> list[tuple[str, str]]:
        found = self._reading(lambda c: c.execute(statement("ready"), {"by": spell(by)}).fetchall())
        return [phase for phase in found if phase in phases]

    def count(self, where: Filter) -> list[TaskCount]:
        return self._reading(lambda connection: counts.count(connection, where))

    # ── unreadable rows ──

    def _reading(self, read: Callable[[sqlite3.Connection], T]) -> T:
        def once() -> T:
            with self._connections.read() as connection:
                return read(connection)

        return self._without_unreadable(once)

    def _without_unreadable(self, work: Callable[[], T]) -> T:
        """Return the result of `work`; if a row stops it, quarantine the unreadable rows and call it again."""
        while True:
            try:
                return without_unreadable(work, self._set_aside)
            except RowRefused:
                if not self._set_suspects_aside():
                    raise

    def _set_aside(self, ids: Sequence[Any]) -> int:
        with self._connections.write() as connection:
            count = quarantine.set_aside(connection, ids, self.now())
        if count:
            self._wake()
        return count

    def _set_suspects_aside(self) -> set[Any]:
        """Quarantine unreadable rows, after one of them stopped a statement; return their ids, a thousand at most."""
        with self._connections.read() as connection:
            found = quarantine.suspects(connection)
        return set(found) if self._set_aside(found) else set()

    # ── search, maintenance ──

    def store_counts(self) -> StoreCounts:
        return StoreCounts(self._reading(counts.store_counts), self.now())

    def search(
        self,
        where: Filter,
        *,
        limit: int = 100,
        order: Order = "newest",
        after: str | None = None,
        within: timedelta,
    ) -> Search:
        return self._reading(lambda connection: searching.search(connection, where, limit, order, after, within))

    def identity(self) -> object:
        """Return device and inode of the file: equal for every path to it, including links."""
        try:
            found = self._connections.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def inspect(self, *, quick: bool = False) -> list[Finding]:
        return maintenance.inspect(self._connections, quick=quick)

    def sizes(self) -> list[StoredSize]:
        return maintenance.sizes(self._connections)

    def repair(self) -> None:
        """Recompute the counters of ended tasks."""
        maintenance.repair(self._connections)

    def migration(self) -> Migration:
        return maintenance.migration(self._connections)

    def backup(self, path: Path, progress: Callable[[float], None]) -> None:
        maintenance.backup(self._connections, path, progress)

    # ── removal ──

    def remove(self, tasks: Sequence[Task]) -> int:
        asked = _encode([(task.task_id, task.version) for task in tasks]).decode()
        with self._connections.write() as connection:
            gone = connection.execute(statement("remove"), {"rows": asked}).fetchall()
            ids = {task_id for (task_id,) in gone}
            task_log.remove(connection, sorted(ids))
            counts.write(connection, counts.of_removed(task for task in tasks if task.task_id in ids))
        return len(gone)

    def remove_log(self, task_ids: Sequence[str]) -> None:
        with self._connections.write() as connection:
            task_log.remove(connection, task_ids)

    # ── output, notes ──

    def append_log(self, lines: Sequence[LogLine]) -> None:
        with self._connections.write() as connection:
            task_log.append(connection, lines, self._output_bound)

    def read_log(self, task_id: str, *, after: int = 0, limit: int = 1000, tail: int | None = None) -> LogPage:
        with self._connections.read() as connection:
            return task_log.read_page(connection, task_id, after, limit, tail)

    def notes(self, kind: str, *, since: str = "", before: str = "") -> list[Note]:
        with self._connections.read() as connection:
            return notes.read_all(connection, kind, since, before)

    def write_notes(self, given: Sequence[Note]) -> list[bool]:
        with self._connections.write() as connection:
            return notes.write(connection, given, self.now())

    def drop_notes(self, kind: str, names: Sequence[str]) -> int:
        with self._connections.write() as connection:
            return notes.drop(connection, kind, names)

    # ── waking, closing ──

    def waker(self) -> SqliteWaker:
        waker = SqliteWaker(self.path, self._connections.data_version, self._wakers.remove)
        self._wakers.append(waker)
        return waker

    def _wake(self) -> None:
        """Wake the workers of this process, since data_version does not change on commits of their own connection."""
        for waker in list(self._wakers):
            waker.poke()

    def close(self) -> None:
        self._connections.close()

    def count_statements(self) -> Callable[[], int]:
        """Count the writer's statements from now on, without BEGIN, COMMIT, savepoints and pragmas."""
        seen = 0

        def count(sql: str) -> None:
            nonlocal seen
            if not sql.startswith(("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "PRAGMA")):
                seen += 1

        self.prepare()
        self._connections.writer().set_trace_callback(count)
        return lambda: seen


def _insert(cursor: sqlite3.Cursor, tasks: Sequence[Task]) -> list[Inserted | Existing]:
    if len(tasks) > 1:
        # Usually every row is new. If not, insert one by one to find out which exist.
        cursor.execute("SAVEPOINT onerow_insert")
        written = 0
        for batch in batches(FIELDS, columns_of(tasks), always=1):
            written += cursor.execute(insert_sql(batch.shared, batch.varying, batch.size), batch.given).rowcount
        if written == len(tasks):
            counts.write(cursor, counts.of_tasks(tasks))
            cursor.execute("RELEASE onerow_insert")
            return [Inserted(task) for task in tasks]
        cursor.execute("ROLLBACK TO onerow_insert")
        cursor.execute("RELEASE onerow_insert")
    return [_insert_one(cursor, task) for task in tasks]


def _insert_of(task: Task) -> tuple[str, list[Any]]:
    row = row_of(task)
    return insert_one_sql(tuple(row)), list(row.values())


def _insert_one(cursor: sqlite3.Cursor, task: Task) -> Inserted | Existing:
    if cursor.execute(*_insert_of(task)).rowcount == 1:
        counts.write(cursor, counts.of_tasks([task]))
        return Inserted(task)
    row = cursor.execute(f"SELECT {COLUMNS} FROM task_queue WHERE task_id = ?", (task.task_id,)).fetchone()
    if row is None:
        row = cursor.execute(
            f"SELECT {COLUMNS} FROM task_queue WHERE pipeline = ? AND user_id = ? AND held_key = ?",
            (task.pipeline, task.user_id, task.held_key),
        ).fetchone()
    return Existing(decoded([row], task_of, ID)[0])
