"""Reading: by id, by filter, a page at a time, counted. From a replica as well as from the server itself."""

import base64
from collections.abc import Sequence
from datetime import datetime

import msgspec

from onerow.core.errors import BadInput
from onerow.core.status import Status
from onerow.core.task import Task
from onerow.core.times import read, spell
from onerow.ports import Filter, LogPage, Note, Order, Page, Tally
from onerow.stores.postgres import logbook, notes
from onerow.stores.postgres.door import Door
from onerow.stores.postgres.filters import ORDERS, page_sql, where_sql
from onerow.stores.postgres.rows import COLUMNS, task_of
from onerow.stores.postgres.statements import quoted
from onerow.stores.postgres.wire import Texts, column, moment

_encode = msgspec.json.Encoder().encode


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

    def find(self, where: Filter, *, limit: int = 100, order: Order = "newest", after: str | None = None) -> Page:
        sql, given = page_sql(self._table, where, order, limit + 1, None if after is None else _read_cursor(after))
        rows = self._door.read(lambda c: c.execute(sql, given, binary=True, prepare=False).fetchall())
        tasks = [task_of(row) for row in rows[:limit]]
        if len(rows) <= limit or not tasks:
            return Page(tasks)
        return Page(tasks, _write_cursor(spell(getattr(tasks[-1], ORDERS[order][0])), tasks[-1].task_id))

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


def _write_cursor(moment: str, task_id: str) -> str:
    return base64.urlsafe_b64encode(_encode([moment, task_id])).decode()


def _read_cursor(text: str) -> tuple[datetime, str]:
    try:
        moment, task_id = msgspec.json.decode(base64.urlsafe_b64decode(text), type=tuple[str, str])
        return read(moment), task_id
    except Exception:
        raise BadInput(f"{text!r} is not where a page ended; pass a page's `next` as it is", field="after") from None
