"""Compare-and-swap of tasks: many rows in one statement, one answer for each move.

Moves with the same conditions share a statement, which sets every column that changes in any of them. A value that all
rows share is sent once; other values are sent as one array per column. The statement returns NULL if all rows were
written, else the positions of those that were.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from psycopg import errors
from psycopg.types.numeric import Int8

from onerow.core.task import COLUMN, Task, changed_columns
from onerow.ports import Conflict, Move, Stale, SwapAnswer, Swapped
from onerow.stores.postgres import counts
from onerow.stores.postgres.fast.binary import Bigs, Ctids, Texts, column
from onerow.stores.postgres.pipelining import Connection, Cursor, Transaction
from onerow.stores.postgres.rows import KINDS, SQL_TYPE
from onerow.stores.postgres.statements import quoted, statement
from onerow.stores.shared.waking import any_wakes

# These nearly always differ between rows. Never sending them as shared keeps the number of distinct statements small.
_NEVER_SHARED = frozenset({"logs_json", "results_json", "elapsed_time", "payload_json", "error", "token", "title"})


_UNKNOWN: tuple[int, None] = (0, None)
_MAX_LOCATIONS = 20_000
"""Bound for tasks that were claimed and never written; a worker has fewer in flight."""


class RowLocations:
    """The physical locations (ctid) of rows that this store claimed and has not written since.

    A write by ctid needs no index lookup. A ctid is valid until the next write to the row, by any client, so it is only
    a hint: the write still compares id and version, and a row that is not found at its ctid is written by id.
    """

    def __init__(self) -> None:
        self._locations: dict[str, tuple[int, bytes]] = {}

    def remember(self, tasks: Iterable[Task], locations: Iterable[bytes]) -> None:
        """Record the locations of claimed tasks."""
        if len(self._locations) > _MAX_LOCATIONS:
            self._locations.clear()
        self._locations.update(
            (task.task_id, (task.version, location)) for task, location in zip(tasks, locations, strict=True)
        )

    def take(self, tasks: Iterable[Task]) -> list[bytes | None]:
        """Remove and return the location of each task; None: unknown, or the task has another version."""
        found = []
        for task in tasks:
            version, location = self._locations.pop(task.task_id, _UNKNOWN)
            found.append(location if version == task.version else None)
        return found


class _Shape(NamedTuple):
    """What moves in one statement have in common."""

    nth: int  # first, second … move of its task in this batch
    by_location: bool
    if_dead: bool
    version_step: int  # a move made by two rules increments the version twice
    counted: counts.Change
    remove: bool


class _Sent(msgspec.Struct):
    indexes: Sequence[int]
    by_location: bool
    cursor: Cursor


class Swapping:
    """A batch of moves: `send` inside a pipeline, `receive` after the pipeline has ended."""

    def __init__(self, schema: str, moves: Sequence[Move], locations: RowLocations, now: datetime | None) -> None:
        self._schema = schema
        self.moves = moves
        self.transaction: Transaction | None = None
        self._locations = locations.take(move.before for move in moves)
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
                by_location = self._locations[index] is not None and not move.if_dead
                self._groups.setdefault(_shape(move, nth, by_location=by_location), []).append(index)

    @property
    def is_committed(self) -> bool:
        """Whether the moves were committed, even if the claim of the same round failed."""
        return self.transaction is not None and self.transaction.is_first_part_committed

    def send(self, connection: Connection) -> None:
        """Send all moves, and a notification if one of them creates work for other workers; inside a transaction."""
        for shape, indexes in sorted(self._groups.items(), key=lambda item: item[0].nth):
            # Sorted by id, so that two clients that write the same rows do not deadlock.
            indexes.sort(key=lambda index: self.moves[index].before.task_id)
            self._write(connection, shape, indexes)
        for index in self.contested:
            self._write_contested(connection, index)
        if any_wakes(self.moves):
            connection.execute("SELECT pg_notify(%s, '')", (f"onerow.{self._schema}",))

    def receive(self) -> list[SwapAnswer]:
        answers: list[SwapAnswer] = [Swapped(move.after) for move in self.moves]
        for sent in self._sent:
            ((written,),) = sent.cursor.fetchall()
            if written is None:
                continue
            missing = set(sent.indexes).difference(sent.indexes[nth - 1] for nth in written)
            for index in missing:
                answers[index] = Stale(self.moves[index].before.task_id)
            if sent.by_location:
                self.not_at_location += sorted(missing)
        for index, other_id in self._conflicts.items():
            answers[index] = Conflict(self.moves[index].before.task_id, other_id)
        return answers

    def _write_contested(self, connection: Connection, index: int) -> None:
        """Write a move that takes a unique key; record a conflict if another task holds it."""
        move = self.moves[index]
        try:
            with connection.transaction():
                self._write(connection, _shape(move, 0, by_location=False), [index])
        except errors.UniqueViolation:
            self._conflicts[index] = self._holder(connection, move.after)

    def _write(self, connection: Connection, shape: _Shape, indexes: Sequence[int]) -> None:
        moves = [self.moves[index] for index in indexes]
        written = (
            {} if shape.remove else changed_columns((move.before for move in moves), (move.after for move in moves))
        )
        written.pop("version", None)  # the statement always increments it
        shared = tuple(
            field
            for field, values in written.items()
            if field not in _NEVER_SHARED and values.count(values[0]) == len(values)
        )
        given: dict[str, Any] = {
            "ids": column(Texts, [move.before.task_id for move in moves]),
            "versions": column(Bigs, [move.before.version for move in moves]),
            "size": Int8(len(moves)),
        }
        if not shape.remove:
            given["version_step"] = Int8(shape.version_step)
        for field, values in written.items():
            given[field] = values[0] if field in shared else column(KINDS[field], values)
        if shape.by_location:
            given["row_locations"] = column(Ctids, [self._locations[index] for index in indexes])
        if shape.if_dead:
            given["now"] = self._now
        varying = tuple(field for field in written if field not in shared)
        fewer, more = (key is not None for key in shape.counted)
        sql = _swap_sql(
            self._schema,
            shared,
            varying,
            by_location=shape.by_location,
            if_dead=shape.if_dead,
            fewer=fewer,
            more=more,
            remove=shape.remove,
        )
        cursor = connection.execute(sql, given | counts.given(shape.counted), binary=True)
        self._sent.append(_Sent(indexes, shape.by_location, cursor))

    def _holder(self, connection: Connection, task: Task) -> str:
        row = connection.execute(
            (
                f"SELECT task_id FROM {quoted(self._schema)}.task_queue "
                f"WHERE pipeline = %s AND user_id = %s AND held_key = %s"
            ),
            (task.pipeline, task.user_id, task.held_key),
        ).fetchone()
        if row is None:
            raise errors.SerializationFailure(
                "the task that held the unique key has released it; retry the transaction"
            )
        return str(row[0])


def is_contested(move: Move) -> bool:
    """Whether the move takes a unique key, which another task may hold."""
    key = move.after.held_key
    return key is not None and key != move.before.held_key


def _shape(move: Move, nth: int, *, by_location: bool) -> _Shape:
    step = move.after.version - move.before.version
    return _Shape(nth, by_location, move.if_dead, step, counts.change(move), move.remove)


@lru_cache(maxsize=512)
def _swap_sql(
    schema: str,
    shared: tuple[str, ...],
    varying: tuple[str, ...],
    *,
    by_location: bool,
    if_dead: bool,
    fewer: bool,
    more: bool,
    remove: bool,
) -> Any:
    sets = ["version = t.version + %(version_step)s::bigint"]
    sets += [f"{COLUMN[field]} = %({field})s::{SQL_TYPE[KINDS[field]]}" for field in shared if field != "status"]
    sets += [f"{COLUMN[field]} = m.{field}" for field in varying]
    if "status" in shared:
        # In a subquery, so that the domain's CHECK runs once and not for each row.
        sets.append(f"status = (SELECT %(status)s::{quoted(schema)}.task_status)")
    located = ("row_location",) if by_location else ()
    arrays = [f"%({name}s)s" for name in ("id", "version", *located)] + [f"%({field})s" for field in varying]
    # IS TRUE keeps the planner from using the index on task_id, as it would in a small table.
    same_row = "t.ctid = m.row_location AND (t.task_id = m.task_id) IS TRUE" if by_location else "t.task_id = m.task_id"
    # A transaction that began more than a second ago has waited for a lock, and the holder's heartbeat may have too.
    lease_ended = (
        "AND t.leased_until <= coalesce(%(now)s::timestamptz, date_trunc('milliseconds', clock_timestamp())) "
        "AND clock_timestamp() - transaction_timestamp() < interval '1 second'"
        if if_dead
        else ""
    )
    return (
        statement("swap_remove" if remove else "swap", schema)
        .replace("{sets}", ", ".join(sets))
        .replace("{arrays}", ", ".join(arrays))
        .replace("{names}", ", ".join(["task_id", "version", *located, *varying, "nth"]))
        .replace("{same_row}", same_row)
        .replace("{lease_ended}", lease_ended)
        .replace("{counters}", counts.counting_sql(schema, fewer=fewer, more=more))
    )
