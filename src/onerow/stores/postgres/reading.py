"""Reading: by id, by filter, a page at a time, counted. From a replica as well as from the server itself."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from onerow.core.status import Status
from onerow.core.task import Task
from onerow.core.times import to_millis
from onerow.ports import Census, Filter, LeaseRecord, LogPage, Note, Order, Page, Search, Tally
from onerow.stores.postgres import logbook, notes, searching, tallies
from onerow.stores.postgres.door import Door
from onerow.stores.postgres.filters import where_sql
from onerow.stores.postgres.rows import COLUMNS, task_of
from onerow.stores.postgres.statements import quoted, statement
from onerow.stores.postgres.wire import Texts, column, moment


class Reading:
    """The part of ports.Store that changes nothing."""

    def __init__(self, door: Door, schema: str) -> None:
        self._door = door
        self._schema = schema
        self._table = f"{quoted(schema)}.task_queue"

    @property
    def url(self) -> str:
        return self._door.address.masked

    def fetch(self, ids: Sequence[str]) -> list[Task]:
        if not ids:
            return []
        sql = f"SELECT {COLUMNS} FROM {self._table} WHERE task_id = ANY (%s)"
        given = (column(Texts, list(dict.fromkeys(ids))),)
        return self._door.read(lambda c: [task_of(row) for row in c.execute(sql, given, binary=True)])

    def leases(self, *, pipeline: str | None = None, phase: str | None = None, limit: int) -> list[LeaseRecord]:
        return self._door.read(lambda c: searching.leases(c, self._table, pipeline, phase, limit))

    def find(self, where: Filter, *, limit: int = 100, order: Order = "newest", after: str | None = None) -> Page:
        return self._door.read(lambda c: searching.find(c, self._table, where, limit, order, after))

    def due(self, pipeline: str, phase: str, by: datetime, limit: int) -> list[Task]:
        sql = statement("due", self._schema).replace("{columns}", COLUMNS)
        given = {"pipeline": pipeline, "phase": phase, "by": by, "limit": limit}
        return self._door.read(lambda c: [task_of(row) for row in c.execute(sql, given, binary=True)])

    def search(
        self,
        where: Filter,
        *,
        limit: int = 100,
        order: Literal["newest", "latest"] = "newest",
        after: str | None = None,
        within: timedelta,
    ) -> Search:
        """As `find`, but stops when the time is over and says how far it looked."""
        return self._door.read(lambda c: searching.search(c, self._table, where, limit, order, after, within))

    def census(self) -> Census:
        """How many tasks stand where, in the whole store."""
        ((said,),) = self._door.read(lambda c: c.execute("SELECT clock_timestamp()", binary=True).fetchall())
        tallied = self._door.read(lambda c: tallies.census(c, self._schema))
        return Census(tallied, to_millis(moment(said)))

    def count(self, where: Filter) -> list[Tally]:
        condition, given = where_sql(where)
        sql = (
            f"SELECT pipeline, type, status, status = 'waiting' AND awaiting IS NOT NULL, count(*), "
            f"min(run_at) FILTER (WHERE status = 'waiting') "
            f"FROM {self._table} WHERE {condition} GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
        )
        rows = self._door.read(lambda c: c.execute(sql, given, binary=True, prepare=False).fetchall())
        return [
            Tally(pipeline, phase, Status(status), parked, count, None if oldest is None else moment(oldest))
            for pipeline, phase, status, parked, count, oldest in rows
        ]

    def read_log(self, task_id: str, *, after: int = 0, limit: int = 1000, tail: int | None = None) -> LogPage:
        return self._door.read(lambda c: logbook.read_page(c, self._schema, task_id, after, limit, tail))

    def notes(self, kind: str, *, since: str = "", before: str = "") -> list[Note]:
        return self._door.read(lambda c: notes.read_all(c, self._schema, kind, since, before))
