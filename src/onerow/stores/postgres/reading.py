"""The read operations of the store; they also work on a standby."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import TypeVar

from onerow.core.corruption import decoded, without_unreadable
from onerow.core.filters import Filter, Order
from onerow.core.task import Task
from onerow.core.times import to_millis
from onerow.ports import LeaseRecord, LogPage, Note, Page, PhaseClaim, Search, StoreCounts, TaskCount
from onerow.stores.postgres import counts, notes, searching, task_log
from onerow.stores.postgres.claimable import claimable
from onerow.stores.postgres.connections import Connections
from onerow.stores.postgres.fast.binary import Texts, column, moment
from onerow.stores.postgres.filters import where_sql
from onerow.stores.postgres.pipelining import Connection, read_transaction
from onerow.stores.postgres.rounds import Rounds
from onerow.stores.postgres.rows import COLUMNS, ID, task_of
from onerow.stores.postgres.statements import quoted, statement

T = TypeVar("T")


class Reading:
    """The read-only part of ports.Store."""

    _rounds: Rounds

    def __init__(self, connections: Connections, schema: str) -> None:
        self._connections = connections
        self._schema = schema
        self._table = f"{quoted(schema)}.task_queue"

    @property
    def url(self) -> str:
        return self._connections.address.masked

    def fetch(self, ids: Sequence[str]) -> list[Task]:
        if not ids:
            return []
        sql = f"SELECT {COLUMNS} FROM {self._table} WHERE task_id = ANY (%s)"
        given = (column(Texts, list(dict.fromkeys(ids))),)
        return self._reading(lambda c: decoded(c.execute(sql, given, binary=True).fetchall(), task_of, ID))

    def leases(self, *, pipeline: str | None = None, phase: str | None = None, limit: int) -> list[LeaseRecord]:
        return self._reading(lambda c: searching.leases(c, self._table, pipeline, phase, limit))

    def find(self, where: Filter, *, limit: int = 100, order: Order = "newest", after: str | None = None) -> Page:
        return self._reading(lambda c: searching.find(c, self._table, where, limit, order, after))

    def due(self, pipeline: str, phase: str, by: datetime, limit: int) -> list[Task]:
        sql = statement("due", self._schema).replace("{columns}", COLUMNS)
        given = {"pipeline": pipeline, "phase": phase, "by": by, "limit": limit}
        return self._reading(lambda c: decoded(c.execute(sql, given, binary=True).fetchall(), task_of, ID))

    def ready(self, phases: AbstractSet[tuple[str, str]], by: datetime) -> list[tuple[str, str]]:
        def read(connection: Connection) -> list[tuple[str, str]]:
            with read_transaction(connection):
                cursor = connection.execute(statement("ready", self._schema), {"by": by}, binary=True)
            return cursor.fetchall()

        return [phase for phase in self._connections.read(read) if phase in phases]

    def claimable(self, want: PhaseClaim, by: datetime) -> int:
        return self._connections.read(lambda c: claimable(c, self._schema, want, by))

    def search(
        self,
        where: Filter,
        *,
        limit: int = 100,
        order: Order = "newest",
        after: str | None = None,
        within: timedelta,
    ) -> Search:
        """Like `find`, but stop at the time limit and report how far the search got."""
        return self._reading(lambda c: searching.search(c, self._table, where, limit, order, after, within))

    def store_counts(self) -> StoreCounts:
        """Count all tasks by pipeline, phase and status."""
        ((server_time,),) = self._connections.read(
            lambda c: c.execute("SELECT clock_timestamp()", binary=True).fetchall()
        )
        task_counts = self._reading(lambda c: counts.store_counts(c, self._schema))
        return StoreCounts(task_counts, to_millis(moment(server_time)))

    def count(self, where: Filter) -> list[TaskCount]:
        condition, given = where_sql(where)
        sql = f"{counts.group_sql(self._schema)} WHERE {condition} {counts.GROUPED}"
        return self._reading(
            lambda c: counts.task_counts(c, self._schema, c.execute(sql, given, binary=True, prepare=False).fetchall())
        )

    def _reading(self, read: Callable[[Connection], T]) -> T:
        return without_unreadable(lambda: self._connections.read(read), self._quarantine)

    def _quarantine(self, ids: Sequence[str]) -> int:
        """Quarantine unreadable rows; return how many."""
        return self._rounds.quarantine(ids)

    def read_log(self, task_id: str, *, after: int = 0, limit: int = 1000, tail: int | None = None) -> LogPage:
        return self._connections.read(lambda c: task_log.read_page(c, self._schema, task_id, after, limit, tail))

    def notes(self, kind: str, *, since: str = "", before: str = "") -> list[Note]:
        return self._connections.read(lambda c: notes.read_all(c, self._schema, kind, since, before))
