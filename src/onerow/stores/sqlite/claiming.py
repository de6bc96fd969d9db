"""Claiming. It runs under the write lock, so the rows it read cannot change before it writes them."""

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from onerow.core.corruption import decoded, set_apart
from onerow.core.slots import PhaseSlots
from onerow.core.task import Task
from onerow.core.times import spell
from onerow.ports import Claim, PhaseClaim
from onerow.stores.sqlite.rows import CLAIMED_COLUMNS, CLAIMED_FIELDS, COLUMNS, ID, claimed_task, task_of
from onerow.stores.sqlite.statements import statement

_encode = msgspec.json.Encoder().encode

_sort_key = itemgetter(*(1 + CLAIMED_FIELDS.index(field) for field in ("priority", "run_at", "task_id")))
_ID = 1 + CLAIMED_FIELDS.index("task_id")
_KEY = 1 + CLAIMED_FIELDS.index("limit_key")

Row = tuple[Any, ...]
Slots = tuple[int | None, int | None]
Cursors = dict[tuple[str, str], str]
"""Round-robin cursors by (pipeline, phase): the last limit_key that was scanned; '' starts over."""
Key = tuple[str, int]
"""A limit_key, and a priority at which tasks with that key wait."""
_FEW_KEYS = 50  # a claim scans all keys if there are fewer
_MAX_KEYS = 200  # a claim scans at most this many
_BEYOND = (1000, "", "")  # sorts after every task


class ClaimedRows(NamedTuple):
    """The rows that a claim took in one phase, as read before the write, and their slots if the phase has limits."""

    want: PhaseClaim
    worker: str
    now: datetime
    rows: list[Row]
    slots: list[Slots] | None

    def tasks(self) -> tuple[list[Task], list[Any]]:
        """Return the claimed tasks and the ids of unreadable rows. Called after the transaction, to keep it short."""
        pipeline, phase, until = self.want.pipeline, self.want.phase, self.now + self.want.lease_for
        slots = self.slots or [(None, None)] * len(self.rows)
        return set_apart(
            list(zip(self.rows, slots, strict=True)),
            lambda found: claimed_task(found[0], pipeline, phase, self.worker, self.now, until, *found[1]),
            lambda found: found[0][_ID],
        )


def claim(connection: sqlite3.Connection, claim: Claim, now: datetime, cursors: Cursors) -> list[ClaimedRows]:
    """See ports.Store.claim; inside an open transaction."""
    claimed_rows: list[ClaimedRows] = []
    found = 0
    for want in claim.phases:
        capacity = want.limit if claim.limit is None else min(want.limit, claim.limit - found)
        if capacity > 0:
            claimed = _claim_phase(connection, claim, msgspec.structs.replace(want, limit=capacity), now, cursors)
            found += len(claimed.rows)
            claimed_rows.append(claimed)
    return claimed_rows


def due(connection: sqlite3.Connection, pipeline: str, phase: str, by: datetime, limit: int) -> list[Task]:
    """See ports.Store.due."""
    terms = {"pipeline": pipeline, "phase": phase, "now": spell(by), "limit": limit, "keyed": limit}
    rows = [row[1:] for row in connection.execute(whole_rows(), terms)]
    tasks = decoded(rows, task_of, ID)
    return sorted(tasks, key=lambda task: (task.priority, task.run_at, task.task_id))[:limit]


def _claim_phase(
    connection: sqlite3.Connection, claim: Claim, want: PhaseClaim, now: datetime, cursors: Cursors
) -> ClaimedRows:
    slots: list[Slots] | None = None
    if want.slots is None and want.key_slots is None:
        rows = _due(connection, want, now, want.limit, claim.ids)
    else:
        rows, slots = _due_in_slots(connection, want, now, claim.ids, cursors)
    if rows:
        terms = {"worker": claim.worker, "until": spell(now + want.lease_for), "now": spell(now)}
        if slots is None:
            connection.execute(statement("lease"), terms | {"rows": _encode([row[0] for row in rows]).decode()})
        else:
            leased = [(row[0], *slot) for row, slot in zip(rows, slots, strict=True)]
            connection.execute(statement("lease_slots"), terms | {"rows": _encode(leased).decode()})
    return ClaimedRows(want, claim.worker, now, rows, slots)


def _due(
    connection: sqlite3.Connection, want: PhaseClaim, now: datetime, limit: int, ids: Sequence[str] | None
) -> list[Row]:
    terms = {"pipeline": want.pipeline, "phase": want.phase, "now": spell(now), "limit": limit}
    if ids is not None:
        return connection.execute(_by_id(), terms | {"ids": _encode(list(ids)).decode()}).fetchall()
    rows = connection.execute(_in_order(), terms | {"keyed": limit}).fetchall()
    if rows and rows[-1][_KEY] and not rows[0][_KEY]:  # two sorted runs: without a key, with one
        return sorted(rows, key=_sort_key)[:limit]
    return rows


def _due_in_slots(
    connection: sqlite3.Connection, want: PhaseClaim, now: datetime, ids: Sequence[str] | None, cursors: Cursors
) -> tuple[list[Row], list[Slots]]:
    """Return the due rows that the limits admit, and their slots."""
    terms = {"pipeline": want.pipeline, "phase": want.phase}
    running = connection.execute(statement("taken"), terms).fetchall()
    unused = PhaseSlots(want.slots, want.key_slots, running)
    limit = want.limit if unused.free is None else min(want.limit, unused.free)
    if limit <= 0:
        return [], []
    if want.key_slots is None or ids is not None:
        return _admit(unused, limit, _due(connection, want, now, limit if ids is None else len(ids), ids))
    keys = _keys_waiting(connection, want, "", _FEW_KEYS)
    # With few keys, read the first tasks of each key. With many, read the first due tasks of all keys. If too many of
    # those belong to full keys, read a batch of keys, round robin. Tasks without a key keep their rank in the order.
    keyed_limit = 2 * limit + 50 if len(keys) == _FEW_KEYS else 0
    first = connection.execute(
        _in_order(), terms | {"now": spell(now), "limit": limit, "keyed": keyed_limit}
    ).fetchall()
    if keyed_limit:
        keyed = [row for row in first if row[_KEY]]
        horizon = _sort_key(keyed[-1]) if len(keyed) == keyed_limit else _BEYOND
        slots = PhaseSlots(want.slots, want.key_slots, running)
        admitted = _admit(slots, limit, sorted((row for row in first if _sort_key(row) <= horizon), key=_sort_key))
        if len(admitted[0]) == limit or horizon is _BEYOND:
            return admitted
        keys = _next_keys(connection, want, cursors)
    open_keys = [key for key in keys if not unused.is_full(key[0])]
    given = terms | {"now": spell(now), "key_slots": want.key_slots, "keys": _encode(open_keys).decode()}
    others = connection.execute(_by_key(), given).fetchall()
    return _admit(unused, limit, sorted({row[0]: row for row in [*first, *others]}.values(), key=_sort_key))


def _keys_waiting(connection: sqlite3.Connection, want: PhaseClaim, after: str, most: int) -> list[Key]:
    """Return the next keys that have waiting tasks, with their priorities."""
    terms = {"pipeline": want.pipeline, "phase": want.phase, "after": after, "most": most}
    return connection.execute(statement("keys_waiting"), terms).fetchall()


def _next_keys(connection: sqlite3.Connection, want: PhaseClaim, cursors: Cursors) -> list[Key]:
    """Return the next batch of keys, round robin, and move the cursor."""
    after = cursors.get((want.pipeline, want.phase), "")
    keys = _keys_waiting(connection, want, after, _MAX_KEYS)
    if after and len(keys) < _MAX_KEYS:
        keys = list(dict.fromkeys([*keys, *_keys_waiting(connection, want, "", _MAX_KEYS)]))[:_MAX_KEYS]
    seen = ""  # the batch contains every key
    if len(keys) == _MAX_KEYS:
        last = keys[-1][0]  # it may have more priorities, so the next batch starts with it
        seen = next((key for key, _ in reversed(keys) if key != last), last)
    cursors[want.pipeline, want.phase] = seen
    return keys


def _admit(slots: PhaseSlots, limit: int, found: Iterable[Row]) -> tuple[list[Row], list[Slots]]:
    """Return the first rows that the limits admit, and the slots that they get."""
    rows: list[Row] = []
    taken: list[Slots] = []
    for row in found:
        if len(rows) == limit:
            break
        if (free := slots.take(row[_KEY])) is not None:
            rows.append(row)
            taken.append(free)
    return rows, taken


@cache
def _in_order() -> str:
    return statement("claim").format(columns=CLAIMED_COLUMNS)


@cache
def whole_rows() -> str:
    """Return the SQL of `due`, which reads whole rows."""
    return statement("claim").format(columns=", ".join(f"t.{column}" for column in COLUMNS.split(", ")))


@cache
def _by_key() -> str:
    return statement("claim_by_key").format(columns=CLAIMED_COLUMNS)


@cache
def _by_id() -> str:
    return statement("claim_ids").format(columns=CLAIMED_COLUMNS)
