"""table_ports.OldTable on SQLite: capture by triggers, copy by key, swap in one transaction.

A table that is itself named task_queue can't become a view: onerow's own table takes its name. It is filled under the
name onerow_adopting, so that the swap renames two tables, however many rows they have.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from onerow.core.adoption import parse_json
from onerow.core.errors import BadInput, IllegalMove
from onerow.core.table_mapping import TableMapping, with_types
from onerow.core.task import COLUMN, Task
from onerow.core.times import spell
from onerow.ports import Finding
from onerow.stores.sqlite import counts, notes, schema, views
from onerow.stores.sqlite.connections import Connections
from onerow.stores.sqlite.old_table_shape import CAPTURE, findings, types_of
from onerow.stores.sqlite.rows import row_of
from onerow.stores.sqlite.view_columns import quoted
from onerow.stores.sqlite.view_sql import ViewSql
from onerow.table_ports import (
    ADOPTED_BY,
    ADOPTION,
    SUFFIX,
    Changed,
    Page,
    Row,
    Stage,
    TableShape,
    can_not_hold,
    overtaken,
)

OWN, STAGING = "task_queue", "onerow_adopting"
_PAUSE = "pause"  # kind of the notes of pauses
_TABLES = ("onerow_note", "onerow_tally", "onerow_log", "onerow_log_size", "onerow_meta")
_ADOPTED = (
    "json_extract(logs, '$[0].what') = 'adopted'"  # the first entry of the task's history, unless it is very long
)


class SqliteOldTable:
    """The table that is adopted; while it is swapped, everything runs in the transaction that holds the write lock."""

    def __init__(self, connections: Connections, mapping: TableMapping) -> None:
        self._connections = connections
        self._locked: sqlite3.Connection | None = None
        self._table = mapping.table
        self._before = f"{mapping.table}{SUFFIX}"
        self._changes = f"{CAPTURE}{mapping.table}"
        with connections.read() as connection:
            there = dict(
                connection.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
            )
            migrated = schema.versions(connection)[0] > 0
            in_place = migrated if mapping.table == OWN else there.get(mapping.table) == "view"
            swapped = self._before in there and in_place
            if there.get(self._before if swapped else mapping.table) != "table":
                raise BadInput(f"there is no table {mapping.table} in {connections.path}", field="table")
            if mapping.table == OWN and migrated and not swapped:
                raise BadInput("task_queue is onerow's own table here", field="table")
            types = types_of(connection, mapping, self._before if swapped else mapping.table)
        self._types = types
        self._swapped = swapped
        self.given = mapping
        self.mapping = with_types(mapping, types)
        self._view = ViewSql(self.mapping)
        self._is_own = mapping.table == OWN
        self._has_view = not self._is_own or self.mapping.view not in ("", OWN)
        self._tasks = STAGING if self._is_own and not swapped else OWN
        self._key = quoted(self.mapping.key.name)

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        if self._locked is not None:
            yield self._locked
            return
        with self._connections.write() as connection:
            yield connection

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        if self._locked is not None:
            yield self._locked
            return
        with self._connections.read() as connection:
            yield connection

    def stage(self) -> Stage:
        if self._swapped:
            return "swapped"
        with self._read() as connection:
            found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (self._changes,)).fetchone()
        return "copying" if found else "none"

    def shape(self) -> TableShape:
        with self._read() as connection:
            found = list(findings(connection, self.mapping, self._types))
            if self._is_own and self.mapping.view == OWN:
                found.append(
                    Finding("bad", "task_queue is the name of onerow's own table", "give the view another name")
                )
            ((rows,),) = connection.execute(f"SELECT count(*) FROM {quoted(self._table)}").fetchall()
        return TableShape(types=self._types, key=(self.mapping.key.name,), rows=rows, findings=found)

    def start(self) -> None:
        with self._write() as connection:
            known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (STAGING,)).fetchone()
            if self._is_own and not known:
                for sql in schema.statements(0):
                    connection.execute(sql.replace(OWN, STAGING))
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {quoted(self._changes)} (seq INTEGER PRIMARY KEY AUTOINCREMENT, key NOT NULL)"
            )
            for event, rows in (("INSERT", ("NEW",)), ("UPDATE", ("OLD", "NEW")), ("DELETE", ("OLD",))):
                trigger = quoted(f"{self._changes}_{event.lower()}")
                body = " ".join(
                    f"INSERT INTO {quoted(self._changes)} (key) VALUES ({row}.{self._key});" for row in rows
                )
                connection.execute(
                    f"CREATE TRIGGER IF NOT EXISTS {trigger} AFTER {event} ON {quoted(self._table)} BEGIN {body} END"
                )

    # ── reading ──

    def page(self, after: Any, limit: int) -> Page:
        where, given = ("", ()) if after is None else (f"WHERE {self._key} > ?", (after,))
        with self._read() as connection:
            found = self._rows(connection, f"{where} ORDER BY {self._key} LIMIT {limit}", given)
        return Page(found, found[-1][self.mapping.key.name] if len(found) == limit else None)

    def rows(self, keys: Sequence[Any]) -> list[Row]:
        with self._read() as connection:
            return self._rows(
                connection, f"WHERE {self._key} IN (SELECT value FROM json_each(?))", (json.dumps(list(keys)),)
            )

    def _rows(self, connection: sqlite3.Connection, rest: str, given: Sequence[Any]) -> list[Row]:
        names = [column.name for column in self.mapping.columns]
        rows = connection.execute(
            f"SELECT {', '.join(map(quoted, names))} FROM {quoted(self._table)} {rest}", given
        ).fetchall()
        return [self._parsed(dict(zip(names, row, strict=True))) for row in rows]

    def _parsed(self, row: dict[str, Any]) -> Row:
        """Parse JSON that is stored as text; refuse values that JSON can't hold."""
        for column in self.mapping.columns:
            value = row[column.name]
            if isinstance(value, bytes):
                raise self._bad(
                    row, column.name, "holds bytes", f'give the column up (lost = ["{column.name}"]), or store text'
                )
            if column.kind in ("json", "jsonb") and isinstance(value, str):
                try:
                    row[column.name] = parse_json(value)
                except ValueError:
                    raise self._bad(
                        row, column.name, "is not JSON", "correct the row, or map the column as text"
                    ) from None
        return row

    def _bad(self, row: Row, column: str, problem: str, fix: str) -> BadInput:
        key = row[self.mapping.key.name]
        return BadInput(f"row {key} of {self._table}: column {column} {problem}", fix=fix, field=column)

    def changed(self, limit: int) -> Changed:
        with self._read() as connection:
            found = connection.execute(
                f"SELECT seq, key FROM {quoted(self._changes)} ORDER BY seq LIMIT {limit}"
            ).fetchall()
        return Changed(list(dict.fromkeys(key for _, key in found)), [seq for seq, _ in found])

    def forget(self, positions: Sequence[int]) -> None:
        with self._write() as connection:
            connection.executemany(f"DELETE FROM {quoted(self._changes)} WHERE seq = ?", [(seq,) for seq in positions])

    def shown(self, ids: Sequence[str]) -> dict[str, Row]:
        names = [column.name for column in self.mapping.columns]
        sql = f"{self._view.select(self._tasks, 'task_id,')} AND task_id IN (SELECT value FROM json_each(?))"
        with self._read() as connection:
            rows = connection.execute(sql, (json.dumps(list(ids)),)).fetchall()
        return {row[0]: self._parsed(dict(zip(names, row[1:], strict=True))) for row in rows}

    def count_tasks(self) -> int:
        with self._read() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (self._tasks,)).fetchone():
                return 0
            sql = f"SELECT count(*) FROM {self._tasks} WHERE pipeline = ?"
            return int(connection.execute(sql, (self.mapping.pipeline,)).fetchone()[0])

    # ── writing ──

    def write(self, tasks: Sequence[Task], gone: Sequence[str]) -> None:
        ids = [*(task.task_id for task in tasks), *gone]
        if not ids:
            return
        with self._write() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (self._changes,)).fetchone():
                raise overtaken(self._table)
            self._remove(connection, "AND task_id IN (SELECT value FROM json_each(?))", (json.dumps(ids),))
            for task in tasks:
                row = row_of(task)
                columns = ", ".join(COLUMN[field] for field in row)
                try:
                    connection.execute(
                        f"INSERT INTO {self._tasks} ({columns}) VALUES ({', '.join('?' * len(row))})",
                        list(row.values()),
                    )
                except sqlite3.IntegrityError as error:
                    raise BadInput(
                        f"row {task.task_id} of {self._table}: another task has its id or unique key ({error})",
                        fix="correct the row, or leave unique out of the mapping",
                        field="table",
                    ) from None
            counts.write(connection, counts.of_tasks(tasks))

    def reconcile(self) -> int:
        rows = f"(SELECT CAST({self._key} AS TEXT) FROM {quoted(self._table)} WHERE {self._key} IS NOT NULL)"
        with self._write() as connection:
            self._remove(connection, f"AND {_ADOPTED} AND task_id NOT IN {rows}")
            ((missing,),) = connection.execute(
                f"SELECT count(*) FROM {quoted(self._table)} WHERE {self._key} IS NULL OR CAST({self._key} AS TEXT) NOT IN "
                f"(SELECT task_id FROM {self._tasks} WHERE pipeline = ?)",
                (self.mapping.pipeline,),
            ).fetchall()
        return int(missing)

    def _remove(self, connection: sqlite3.Connection, where: str, given: Sequence[Any] = ()) -> None:
        where = f"pipeline = ? {where}"
        connection.execute(
            f"INSERT INTO onerow_tally (pipeline, type, status, count) SELECT pipeline, type, status, -count(*) FROM {self._tasks} "
            f"WHERE {where} AND status IN ('completed', 'failed', 'cancelled') GROUP BY 1, 2, 3 "
            "ON CONFLICT (pipeline, type, status) DO UPDATE SET count = count + excluded.count",
            (self.mapping.pipeline, *given),
        )
        connection.execute(f"DELETE FROM {self._tasks} WHERE {where}", (self.mapping.pipeline, *given))

    # ── the swap and the way back ──

    @contextmanager
    def _renaming(self) -> Iterator[sqlite3.Connection]:
        """A transaction in which renaming a table leaves views and triggers alone that name it: they go on with the view."""
        self._connections.writer().execute("PRAGMA legacy_alter_table = ON")
        try:
            with self._connections.write() as connection:
                self._locked = connection
                yield connection
        finally:
            self._locked = None
            self._connections.writer().execute("PRAGMA legacy_alter_table = OFF")

    def swap(self, settle: Callable[[], None], body: Any) -> None:
        with self._renaming() as connection:
            settle()
            self._drop_capture(connection)
            connection.execute(f"ALTER TABLE {quoted(self._table)} RENAME TO {quoted(self._before)}")
            if self._is_own:
                connection.execute(f"ALTER TABLE {STAGING} RENAME TO {OWN}")
                schema.record_version(connection)
            if self._has_view:
                views.build(connection, self.mapping)
            connection.execute(
                "UPDATE onerow_note SET body = ?, version = version + 1 WHERE kind = ? AND name = ?",
                (json.dumps(body), ADOPTION, self._table),
            )
            self._end_pause(connection)

    def _end_pause(self, connection: sqlite3.Connection) -> None:
        connection.execute(
            "DELETE FROM onerow_note WHERE kind = ? AND name = ? AND json_extract(body, '$.by') = ?",
            (_PAUSE, f"{self.mapping.pipeline}/*", ADOPTED_BY),
        )

    def _drop_capture(self, connection: sqlite3.Connection) -> None:
        for event in ("insert", "update", "delete"):
            connection.execute(f"DROP TRIGGER IF EXISTS {quoted(f'{self._changes}_{event}')}")
        connection.execute(f"DROP TABLE IF EXISTS {quoted(self._changes)}")

    def undo(self, swapped_at: datetime | None) -> None:
        with self._renaming() as connection:
            if swapped_at is None:
                self._drop_capture(connection)
            else:
                self._refuse_if_run(connection, swapped_at)
                self._write_back(connection)
                if self._has_view:
                    views.remove(connection, self.mapping)
            if self._is_own:
                self._drop_everything(connection)
            else:
                # Tasks that were added in other ways are not in a table that never was a view.
                self._remove(connection, f"AND {_ADOPTED}" if swapped_at is None else "")
                notes.drop(connection, ADOPTION, [self._table])
                self._end_pause(connection)
            if swapped_at is not None:
                connection.execute(f"ALTER TABLE {quoted(self._before)} RENAME TO {quoted(self._table)}")

    def _refuse_if_run(self, connection: sqlite3.Connection, swapped_at: datetime) -> None:
        shown = self._view.select(OWN, "task_id AS onerow_task_id,")
        lost = connection.execute(f"SELECT onerow_task_id FROM ({shown}) WHERE {self._key} IS NULL LIMIT 1").fetchone()
        if lost is not None:
            raise can_not_hold(lost[0], self._table)
        ran = connection.execute(
            f"SELECT task_id FROM {OWN} WHERE pipeline = ? AND (leased_by IS NOT NULL OR started_at >= ?) LIMIT 1",
            (self.mapping.pipeline, spell(swapped_at)),
        ).fetchone()
        if ran is not None:
            raise IllegalMove(
                f"task {ran[0]} has run since {self._table} was adopted",
                fix=f"the old rows are still in {self._before}; copy what you need from there",
                task_id=ran[0],
            )
        other = connection.execute(
            f"SELECT pipeline FROM {OWN} WHERE pipeline <> ? LIMIT 1", (self.mapping.pipeline,)
        ).fetchone()
        if self._is_own and other is not None:
            raise IllegalMove(
                f"the table has tasks of pipeline {other[0]} too, which would be lost",
                fix=f"move or purge them first; the old rows are still in {self._before}",
            )

    def _write_back(self, connection: sqlite3.Connection) -> None:
        """Write tasks that were added or changed since the swap into the old table, and delete rows whose tasks are gone."""
        info = connection.execute(f"PRAGMA table_xinfo({quoted(self._before)})").fetchall()
        generated = {row[1] for row in info if row[6] in (2, 3)}  # hidden: virtual, stored
        columns = [column for column in self.mapping.columns if column.name not in generated]
        names = ", ".join(quoted(column.name) for column in columns)
        update = ", ".join(f"{quoted(c.name)} = excluded.{quoted(c.name)}" for c in columns if c.field != "task_id")
        shown = self._view.select(OWN, "version > token + 1 AS onerow_touched,")
        connection.execute(
            f"DELETE FROM {quoted(self._before)} WHERE {self._key} NOT IN (SELECT {self._key} FROM ({shown}))"
        )
        connection.execute(
            f"INSERT INTO {quoted(self._before)} ({names}) SELECT {names} FROM ({shown}) AS v "
            f"WHERE onerow_touched OR {self._key} NOT IN (SELECT {self._key} FROM {quoted(self._before)}) "
            f"ON CONFLICT ({self._key}) DO UPDATE SET {update}"
        )

    def _drop_everything(self, connection: sqlite3.Connection) -> None:
        """Drop onerow's tables, which this adoption created."""
        for name in (self._tasks, *_TABLES):
            connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
