"""Compare-and-swap of tasks: many rows in one statement, one answer for each move.

Moves with the same conditions share a statement, which sets every column that changes in any of them. A value that all
rows share is sent once; other values are sent as one array per column. The statement returns NULL if all rows were
written, else the positions of those that were.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from psycopg import errors
from psycopg.types.numeric import Int8

from onerow.core.task import COLUMN, Task, changed_columns
from onerow.ports import Conflict, Move, Stale, SwapAnswer, Swapped
from onerow.stores.postgres import counts
from onerow.stores.postgres.connections import Connection, Cursor
from onerow.stores.postgres.fast.binary import Bigs, Texts, column
from onerow.stores.postgres.fast.binary import RowLocations as LocationColumn
from onerow.stores.postgres.fast.row_locations import RowLocations
from onerow.stores.postgres.rows import KINDS, SQL_TYPE
from onerow.stores.postgres.statements import quoted
from onerow.stores.shared.waking import any_wakes

# These nearly always differ between rows. Never sending them as shared keeps the number of distinct statements small.
_NEVER_SHARED = frozenset({"logs_json", "results_json", "elapsed_time", "payload_json", "error", "token", "title"})

_Shape = tuple[int, bool, bool, int, counts.Change]
"""What moves in one statement have in common: nth move of its task, location known, if_dead, version step, counters."""


class _Sent(msgspec.Struct):
    indexes: Sequence[int]
    placed: bool
    cursor: Cursor


class Swapping:
    """A batch of moves: `send` inside a pipeline, `receive` after the pipeline has ended."""

    def __init__(self, schema: str, moves: Sequence[Move], locations: RowLocations, now: datetime | None) -> None:
        self._schema = schema
        self.moves = moves
        self._locations = locations.take([move.before for move in moves])
        self._now = now
        self._sent: list[_Sent] = []
        self._groups: dict[_Shape, list[int]] = {}
        self.contested: list[int] = []  # may violate the unique key, so each needs its answer before the next is sent
        self._conflicts: dict[int, str] = {}
        self.not_at_location: list[int] = []  # not found at their location; they may still have the right version
        seen: dict[str, int] = {}
        for index, move in enumerate(moves):
            # A second move of the same task goes into a later statement.
            nth = seen[move.before.task_id] = seen.get(move.before.task_id, -1) + 1
            if is_contested(move):
                self.contested.append(index)
            else:
                # A rescue that misses must be answered as stale. A retry by id would run in a newer transaction and could pass.
                placed = self._locations[index] is not None and not move.if_dead
                shape = (nth, placed, move.if_dead, _version_step(move), counts.change(move))
                self._groups.setdefault(shape, []).append(index)

    def send(self, connection: Connection) -> None:
        """Send all moves; inside an open transaction."""
        for shape, indexes in sorted(self._groups.items(), key=lambda item: item[0][0]):
            # Sorted by id, so that two clients that write the same rows do not deadlock.
            indexes.sort(key=lambda index: self.moves[index].before.task_id)
            self._sent.append(_Sent(indexes, shape[1], self._write(connection, shape, indexes)))
        for index in self.contested:
            self._write_contested(connection, index)

    @property
    def wakes(self) -> bool:
        """Whether one of the moves creates work for other workers."""
        return any_wakes(self.moves)

    def receive(self) -> list[SwapAnswer]:
        answers: list[SwapAnswer] = [Swapped(move.after) for move in self.moves]
        for sent in self._sent:
            ((written,),) = sent.cursor.fetchall()
            if written is None:
                continue
            missing = set(sent.indexes).difference(sent.indexes[nth - 1] for nth in written)
            for index in missing:
                answers[index] = Stale(self.moves[index].before.task_id)
            if sent.placed:
                self.not_at_location += sorted(missing)
        for index, other_id in self._conflicts.items():
            answers[index] = Conflict(self.moves[index].before.task_id, other_id)
        return answers

    def _write_contested(self, connection: Connection, index: int) -> None:
        """Write a move that takes a unique key; record a conflict if another task holds it."""
        move = self.moves[index]
        shape = (0, False, move.if_dead, _version_step(move), counts.change(move))
        try:
            with connection.transaction():
                self._sent.append(_Sent([index], False, self._write(connection, shape, [index])))
        except errors.UniqueViolation:
            self._conflicts[index] = self._holder(connection, move.after)

    def _write(self, connection: Connection, shape: _Shape, indexes: Sequence[int]) -> Cursor:
        _, placed, if_dead, grown, change = shape
        moves = [self.moves[index] for index in indexes]
        written = changed_columns((move.before for move in moves), (move.after for move in moves))
        written.pop("version", None)  # the statement always increments it
        shared = tuple(
            field
            for field, values in written.items()
            if field not in _NEVER_SHARED and values.count(values[0]) == len(values)
        )
        given: dict[str, Any] = {
            "ids": column(Texts, [move.before.task_id for move in moves]),
            "versions": column(Bigs, [move.before.version for move in moves]),
            "grown": Int8(grown),
            "size": Int8(len(moves)),
        }
        for field, values in written.items():
            given[field] = values[0] if field in shared else column(KINDS[field], values)
        if placed:
            given["places"] = column(LocationColumn, [self._locations[index] for index in indexes])
        if if_dead:
            given["now"] = self._now
        varying = tuple(field for field in written if field not in shared)
        fewer, more = (key is not None for key in change)
        sql = _update(self._schema, shared, varying, placed=placed, if_dead=if_dead, fewer=fewer, more=more)
        return connection.execute(sql, given | counts.given(change), binary=True)

    def _holder(self, connection: Connection, task: Task) -> str:
        row = connection.execute(
            (
                f"SELECT task_id FROM {quoted(self._schema)}.task_queue "
                f"WHERE pipeline = %s AND user_id = %s AND held_key = %s"
            ),
            (task.pipeline, task.user_id, task.held_key),
        ).fetchone()
        if row is None:
            raise errors.SerializationFailure("the task that held the unique key is gone; retry the transaction")
        return str(row[0])


def is_contested(move: Move) -> bool:
    """Whether the move takes a unique key, which another task may hold."""
    key = move.after.held_key
    return key is not None and key != move.before.held_key


def _version_step(move: Move) -> int:
    return move.after.version - move.before.version  # a move made by two rules increments the version twice


@lru_cache(maxsize=512)
def _update(
    schema: str,
    shared: tuple[str, ...],
    varying: tuple[str, ...],
    *,
    placed: bool,
    if_dead: bool,
    fewer: bool,
    more: bool,
) -> Any:
    sets = ["version = t.version + %(grown)s::bigint"]
    sets += [f"{COLUMN[field]} = %({field})s::{SQL_TYPE[KINDS[field]]}" for field in shared if field != "status"]
    sets += [f"{COLUMN[field]} = m.{field}" for field in varying]
    if "status" in shared:
        # In a subquery, so that the domain's CHECK runs once and not for each row.
        sets.append(f"status = (SELECT %(status)s::{quoted(schema)}.task_status)")
    arrays = ", ".join(["%(ids)s", "%(versions)s", *["%(places)s"] * placed, *(f"%({field})s" for field in varying)])
    names = ", ".join(["task_id", "version", *["place"] * placed, *varying, "nth"])
    # IS TRUE keeps the planner from using the index on task_id, as it would in a small table.
    same = "t.ctid = m.place AND (t.task_id = m.task_id) IS TRUE" if placed else "t.task_id = m.task_id"
    # A transaction that began more than a second ago has waited for a lock, and the holder's heartbeat may have too.
    dead = (
        " AND t.leased_until <= coalesce(%(now)s::timestamptz, date_trunc('milliseconds', clock_timestamp()))"
        " AND clock_timestamp() - transaction_timestamp() < interval '1 second'"
        if if_dead
        else ""
    )
    return (
        f"WITH written AS (UPDATE {quoted(schema)}.task_queue AS t SET {', '.join(sets)} "
        f"FROM unnest({arrays}) WITH ORDINALITY AS m ({names}) "
        f"WHERE {same} AND t.version = m.version{dead} RETURNING m.nth)"
        f"{counts.counting_sql(schema, fewer=fewer, more=more)} "
        f"SELECT CASE WHEN count(*) < %(size)s::bigint THEN coalesce(array_agg(nth), '{{}}') END FROM written"
    )
