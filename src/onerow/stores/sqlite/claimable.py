"""How many tasks a claim could lease; reads only."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

import msgspec

from onerow.core.times import spell
from onerow.ports import PhaseClaim
from onerow.stores.shared.claimable import Due, Key, count_claimable
from onerow.stores.sqlite.statements import statement

_encode = msgspec.json.Encoder().encode


def claimable(connection: sqlite3.Connection, want: PhaseClaim, by: datetime) -> int:
    """See ports.Store.claimable."""
    terms = {"pipeline": want.pipeline, "phase": want.phase}
    due = terms | {"now": spell(by)}

    def count(limit: int) -> int:
        sql = f"SELECT count(*) FROM ({statement('claim').format(columns='t.limit_key')})"
        (number,) = connection.execute(sql, due | {"limit": limit, "keyed": limit}).fetchone()
        return min(int(number), limit)

    def first(limit: int) -> list[Due]:
        sql = statement("claim").format(columns="t.task_id, t.limit_key, t.priority, t.run_at")
        rows = connection.execute(sql, due | {"limit": limit, "keyed": limit}).fetchall()
        in_order = sorted(rows, key=lambda row: (row[3], row[4], row[1]))
        return [(row[1], row[2]) for row in in_order[:limit]]

    def keys_after(after: str, most: int) -> list[Key]:
        return connection.execute(statement("keys_waiting"), terms | {"after": after, "most": most}).fetchall()

    def of_keys(keys: Sequence[Key]) -> list[Due]:
        sql = statement("claim_by_key").format(columns="t.task_id, t.limit_key")
        given = due | {"key_slots": want.key_slots, "keys": _encode(keys).decode()}
        return [(task_id, key) for _, task_id, key in connection.execute(sql, given).fetchall()]

    running = connection.execute(statement("taken"), terms).fetchall()
    return count_claimable(want, running, count, first, keys_after, of_keys)
