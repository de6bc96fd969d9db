"""Claiming: under the write lock, so that what was read still holds when it is written."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from onerow.core.corruption import decoded, set_apart
from onerow.core.task import Task
from onerow.core.times import spell
from onerow.ports import Claim, PhaseClaim
from onerow.stores.sqlite.rows import CLAIMED_COLUMNS, CLAIMED_FIELDS, COLUMNS, ID, claimed_task, task_of
from onerow.stores.sqlite.statements import statement

_encode = msgspec.json.Encoder().encode

_place = itemgetter(*(1 + CLAIMED_FIELDS.index(field) for field in ("priority", "run_at", "task_id")))
_ID = 1 + CLAIMED_FIELDS.index("task_id")
_KEY = 1 + CLAIMED_FIELDS.index("limit_key")

Row = tuple[Any, ...]
Slots = tuple[int | None, int | None]
Rounds = dict[tuple[str, str], str]
"""By pipeline and phase, the key behind which those come whose turn it is to be looked at."""
Key = tuple[str, int]
"""A limit_key and a priority at which some of its tasks wait."""
_FEW_KEYS = 50  # which any claim can look at
_MOST_KEYS = 200  # which one claim looks at when its turn has come
_BEYOND = (1000, "", "")  # after every task


class Catch(NamedTuple):
    """What a claim took of one phase: rows as they were before, and their slots if the phase has limits."""

    want: PhaseClaim
    worker: str
    now: datetime
    rows: list[Row]
    slots: list[Slots] | None

    def tasks(self) -> tuple[list[Task], list[Any]]:
        """The tasks, now ours, and the ids of rows that can't be read; made when the transaction is over."""
        pipeline, phase, until = self.want.pipeline, self.want.phase, self.now + self.want.lease_for
        slots = self.slots or [(None, None)] * len(self.rows)
        return set_apart(
            list(zip(self.rows, slots, strict=True)),
            lambda found: claimed_task(found[0], pipeline, phase, self.worker, self.now, until, *found[1]),
            lambda found: found[0][_ID],
        )


def claim(connection: sqlite3.Connection, claim: Claim, now: datetime, turns: Rounds) -> list[Catch]:
    """See ports.Store.claim; inside an open transaction."""
    catches: list[Catch] = []
    found = 0
    for want in claim.wants:
        room = want.limit if claim.limit is None else min(want.limit, claim.limit - found)
        if room > 0:
            catch = _claim_phase(connection, claim, msgspec.structs.replace(want, limit=room), now, turns)
            found += len(catch.rows)
            catches.append(catch)
    return catches


def due(connection: sqlite3.Connection, pipeline: str, phase: str, by: datetime, limit: int) -> list[Task]:
    """See ports.Store.due: what a claim would choose."""
    terms = {"pipeline": pipeline, "phase": phase, "now": spell(by), "limit": limit, "keyed": limit}
    rows = [row[1:] for row in connection.execute(whole_rows(), terms)]
    tasks = decoded(rows, task_of, ID)
    return sorted(tasks, key=lambda task: (task.priority, task.run_at, task.task_id))[:limit]


def _claim_phase(connection: sqlite3.Connection, claim: Claim, want: PhaseClaim, now: datetime, turns: Rounds) -> Catch:
    slots: list[Slots] | None = None
    if want.slots is None and want.key_slots is None:
        rows = _due(connection, want, now, want.limit, claim.ids)
    else:
        rows, slots = _due_in_slots(connection, want, now, claim.ids, turns)
    if rows:
        terms = {"worker": claim.worker, "until": spell(now + want.lease_for), "now": spell(now)}
        if slots is None:
            connection.execute(statement("lease"), terms | {"rows": _encode([row[0] for row in rows]).decode()})
        else:
            placed = [(row[0], *slot) for row, slot in zip(rows, slots, strict=True)]
            connection.execute(statement("lease_slots"), terms | {"rows": _encode(placed).decode()})
    return Catch(want, claim.worker, now, rows, slots)


def _due(
    connection: sqlite3.Connection, want: PhaseClaim, now: datetime, limit: int, ids: Sequence[str] | None
) -> list[Row]:
    terms = {"pipeline": want.pipeline, "phase": want.phase, "now": spell(now), "limit": limit}
    if ids is not None:
        return connection.execute(_by_id(), terms | {"ids": _encode(list(ids)).decode()}).fetchall()
    rows = connection.execute(_in_order(), terms | {"keyed": limit}).fetchall()
    if rows and rows[-1][_KEY] and not rows[0][_KEY]:  # some with a key and some without, each in order
        return sorted(rows, key=_place)[:limit]
    return rows


def _due_in_slots(
    connection: sqlite3.Connection, want: PhaseClaim, now: datetime, ids: Sequence[str] | None, turns: Rounds
) -> tuple[list[Row], list[Slots]]:
    """The due rows that find a place under the limits in force, and their places."""
    terms = {"pipeline": want.pipeline, "phase": want.phase}
    limits = Limits(want, connection.execute(statement("taken"), terms).fetchall())
    if limits.room <= 0:
        return [], []
    if want.key_slots is None or ids is not None:
        return limits.admit(_due(connection, want, now, limits.room if ids is None else len(ids), ids))
    keys = _keys_waiting(connection, want, "", _FEW_KEYS)
    # Where keys are few, the first of each; where they are many, the front of the line. If full keys crowd that, others
    # may hide behind them, which then take turns to be looked at; what has no key doesn't overtake them.
    look = 2 * limits.room + 50 if len(keys) == _FEW_KEYS else 0
    front = connection.execute(_in_order(), terms | {"now": spell(now), "limit": limits.room, "keyed": look}).fetchall()
    if look:
        keyed = [row for row in front if row[_KEY]]
        horizon = _place(keyed[-1]) if len(keyed) == look else _BEYOND
        rows, slots = limits.admit(sorted((row for row in front if _place(row) <= horizon), key=_place))
        if len(rows) == limits.room or horizon is _BEYOND:
            return rows, slots
        keys = _keys_in_turn(connection, want, turns)
    open_keys = [key for key in keys if not limits.is_full(key[0])]
    given = terms | {"now": spell(now), "key_slots": want.key_slots, "keys": _encode(open_keys).decode()}
    others = connection.execute(_by_key(), given).fetchall()
    return limits.admit(sorted({row[0]: row for row in [*front, *others]}.values(), key=_place))


def _keys_waiting(connection: sqlite3.Connection, want: PhaseClaim, after: str, most: int) -> list[Key]:
    """The next keys of which tasks wait, and their priorities."""
    terms = {"pipeline": want.pipeline, "phase": want.phase, "after": after, "most": most}
    return connection.execute(statement("keys_waiting"), terms).fetchall()


def _keys_in_turn(connection: sqlite3.Connection, want: PhaseClaim, turns: Rounds) -> list[Key]:
    """Those whose turn it is."""
    after = turns.get((want.pipeline, want.phase), "")
    keys = _keys_waiting(connection, want, after, _MOST_KEYS)
    if after and len(keys) < _MOST_KEYS:
        keys = list(dict.fromkeys([*keys, *_keys_waiting(connection, want, "", _MOST_KEYS)]))[:_MOST_KEYS]
    seen = ""  # all keys there are
    if len(keys) == _MOST_KEYS:
        last = keys[-1][0]  # it may have more priorities than we saw, so the next look begins with it
        seen = next((key for key, _ in reversed(keys) if key != last), last)
    turns[want.pipeline, want.phase] = seen
    return keys


class Limits:
    """The limits of a phase and what is taken of them."""

    def __init__(self, want: PhaseClaim, taken: Sequence[tuple[str, int | None, int | None]]) -> None:
        self._key_slots = want.key_slots
        self._running: dict[str, int] = {}
        self._held: dict[str, set[int]] = {}
        for key, _, key_slot in taken:
            self._running[key] = self._running.get(key, 0) + 1
            if key_slot is not None:
                self._held.setdefault(key, set()).add(key_slot)
        self.room = want.limit
        self._free: list[int] | None = None
        if want.slots is not None:
            # After a limit was lowered, those above it run out first: fewer than N may be processing, in slots below N.
            self.room = min(self.room, want.slots - len(taken))
            self._free = sorted(set(range(want.slots)) - {slot for _, slot, _ in taken}) if self.room > 0 else []

    def is_full(self, key: str) -> bool:
        return self._key_slots is not None and self._running.get(key, 0) >= self._key_slots

    def admit(self, found: Sequence[Row]) -> tuple[list[Row], list[Slots]]:
        """Those of the rows, in their order, that may run together with what does, and the slots that they get."""
        rows: list[Row] = []
        slots: list[Slots] = []
        new: dict[str, list[int]] = {}  # the slots of each key that this claim takes
        for row in found:
            if len(rows) == self.room:
                break
            key_slot = None
            if self._key_slots is not None and (key := row[_KEY]):
                ours = new.setdefault(key, [])
                held = self._held.get(key, set()).union(ours)
                key_slot = next((place for place in range(self._key_slots) if place not in held), None)
                if key_slot is None or self._running.get(key, 0) + len(ours) >= self._key_slots:
                    continue
                ours.append(key_slot)
            slots.append((None if self._free is None else self._free[len(rows)], key_slot))
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
