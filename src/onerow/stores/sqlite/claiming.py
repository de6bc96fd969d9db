"""Claiming: under the write lock, so that what was read still holds when it is written."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from onerow.core.task import Task
from onerow.core.times import spell
from onerow.ports import Claim, Want
from onerow.stores.sqlite.rows import CLAIMED_COLUMNS, CLAIMED_FIELDS, COLUMNS, claimed_task, task_of
from onerow.stores.sqlite.statements import statement

_encode = msgspec.json.Encoder().encode

_place = itemgetter(*(1 + CLAIMED_FIELDS.index(field) for field in ("priority", "run_at", "task_id")))
_KEY = 1 + CLAIMED_FIELDS.index("limit_key")

Row = tuple[Any, ...]
Slots = tuple[int | None, int | None]


class Catch(NamedTuple):
    """What a claim took of one phase: rows as they were before, and their slots if the phase has limits."""

    want: Want
    worker: str
    now: datetime
    rows: list[Row]
    slots: list[Slots] | None

    def tasks(self) -> list[Task]:
        """The tasks, now ours; made when the transaction is over."""
        pipeline, phase, until = self.want.pipeline, self.want.phase, self.now + self.want.lease_for
        slots = self.slots or [(None, None)] * len(self.rows)
        return [
            claimed_task(row, pipeline, phase, self.worker, self.now, until, slot, key_slot)
            for row, (slot, key_slot) in zip(self.rows, slots, strict=True)
        ]


def claim(connection: sqlite3.Connection, claim: Claim, now: datetime) -> list[Catch]:
    """See ports.Store.claim; inside an open transaction."""
    catches: list[Catch] = []
    found = 0
    for want in claim.wants:
        room = want.limit if claim.limit is None else min(want.limit, claim.limit - found)
        if room > 0:
            catch = _claim_phase(connection, claim, msgspec.structs.replace(want, limit=room), now)
            found += len(catch.rows)
            catches.append(catch)
    return catches


def due(connection: sqlite3.Connection, pipeline: str, phase: str, by: datetime, limit: int) -> list[Task]:
    """See ports.Store.due: what a claim would choose."""
    terms = {"pipeline": pipeline, "phase": phase, "now": spell(by), "limit": limit, "keyed": limit}
    tasks = [task_of(row[1:]) for row in connection.execute(whole_rows(), terms)]
    return sorted(tasks, key=lambda task: (task.priority, task.run_at, task.task_id))[:limit]


def _claim_phase(connection: sqlite3.Connection, claim: Claim, want: Want, now: datetime) -> Catch:
    slots: list[Slots] | None = None
    if want.slots is None and want.key_slots is None:
        rows = _due(connection, want, now, want.limit, claim.ids)
    else:
        rows, slots = _due_in_slots(connection, want, now, claim.ids)
    if rows:
        terms = {"worker": claim.worker, "until": spell(now + want.lease_for), "now": spell(now)}
        if slots is None:
            connection.execute(statement("lease"), terms | {"rows": _encode([row[0] for row in rows]).decode()})
        else:
            placed = [(row[0], *slot) for row, slot in zip(rows, slots, strict=True)]
            connection.execute(statement("lease_slots"), terms | {"rows": _encode(placed).decode()})
    return Catch(want, claim.worker, now, rows, slots)


def _due(
    connection: sqlite3.Connection,
    want: Want,
    now: datetime,
    limit: int,
    ids: Sequence[str] | None,
    keyless: bool = False,
) -> list[Row]:
    terms = {"pipeline": want.pipeline, "phase": want.phase, "now": spell(now), "limit": limit}
    if ids is not None:
        return connection.execute(_by_id(), terms | {"ids": _encode(list(ids)).decode()}).fetchall()
    rows = connection.execute(_in_order(), terms | {"keyed": 0 if keyless else limit}).fetchall()
    if rows and rows[-1][_KEY] and not rows[0][_KEY]:  # some with a key and some without, each in order
        return sorted(rows, key=_place)[:limit]
    return rows


def _due_in_slots(
    connection: sqlite3.Connection, want: Want, now: datetime, ids: Sequence[str] | None
) -> tuple[list[Row], list[Slots]]:
    """The due rows that find a place under the limits in force, and their places."""
    terms = {"pipeline": want.pipeline, "phase": want.phase}
    taken = connection.execute(statement("taken"), terms).fetchall()
    room = want.limit
    free = None
    if want.slots is not None:
        # After a limit was lowered, those above it run out first: fewer than N may be processing, in slots below N.
        room = min(room, want.slots - len(taken))
        free = sorted(set(range(want.slots)) - {slot for _, slot, _ in taken}) if room > 0 else []
    if room <= 0:
        return [], []
    if want.key_slots is None:
        rows = _due(connection, want, now, room, ids)
        return rows, [(free[index] if free is not None else None, None) for index in range(len(rows))]
    if ids is not None:
        found = _due(connection, want, now, len(ids), ids)
    else:
        keyed = connection.execute(_by_key(), terms | {"now": spell(now), "key_slots": want.key_slots}).fetchall()
        found = sorted([*keyed, *_due(connection, want, now, room, None, keyless=True)], key=_place)
    of_key: dict[str, set[int]] = {}
    running: dict[str, int] = {}
    for key, _, key_slot in taken:
        running[key] = running.get(key, 0) + 1
        if key_slot is not None:
            of_key.setdefault(key, set()).add(key_slot)
    rows, slots = [], []
    for row in found:
        if len(rows) == room:
            break
        key, key_slot = row[_KEY], None
        if key:
            held = of_key.setdefault(key, set())
            key_slot = next((place for place in range(want.key_slots) if place not in held), None)
            if key_slot is None or running.get(key, 0) >= want.key_slots:
                continue
            held.add(key_slot)
            running[key] = running.get(key, 0) + 1
        slots.append((free[len(rows)] if free is not None else None, key_slot))
        rows.append(row)
    return rows, slots


@cache
def _in_order() -> str:
    return statement("claim").format(columns=CLAIMED_COLUMNS)


@cache
def whole_rows() -> str:
    """The statement of `due`."""
    return statement("claim").format(columns=", ".join(f"t.{column}" for column in COLUMNS.split(", ")))


@cache
def _by_key() -> str:
    return statement("claim_by_key").format(columns=CLAIMED_COLUMNS)


@cache
def _by_id() -> str:
    return statement("claim_ids").format(columns=CLAIMED_COLUMNS)
