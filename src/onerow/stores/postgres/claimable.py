"""How many tasks a claim could lease; reads only."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from psycopg.types.numeric import Int8

from onerow.ports import PhaseClaim
from onerow.stores.postgres.fast.binary import Shorts, Texts, column
from onerow.stores.postgres.pipelining import Connection, read_transaction
from onerow.stores.postgres.statements import quoted, statement
from onerow.stores.shared.claimable import Due, Key, count_claimable


def claimable(connection: Connection, schema: str, want: PhaseClaim, by: datetime) -> int:
    """See ports.Store.claimable."""
    terms: dict[str, Any] = {"pipeline": want.pipeline, "phase": want.phase}

    def read(sql: str, **given: Any) -> list[Any]:
        with read_transaction(connection):
            cursor = connection.execute(sql, terms | given, binary=True)
        return cursor.fetchall()

    def count(limit: int) -> int:
        ((number,),) = read(statement("claimable", schema), by=by, limit=Int8(limit))
        return int(number)

    def first(limit: int) -> list[Due]:
        sql = statement("due", schema).replace("{columns}", "task_id, limit_key, run_at")
        return [(task_id, key) for task_id, key, _ in read(sql, by=by, limit=Int8(limit))]

    def keys_after(after: str, most: int) -> list[Key]:
        return read(statement("keys_waiting", schema), after=after, most=Int8(most), slots=None)

    def of_keys(keys: Sequence[Key]) -> list[Due]:
        given = {
            "keys": column(Texts, [key for key, _ in keys]),
            "priorities": column(Shorts, [priority for _, priority in keys]),
            "key_slots": Int8(want.key_slots or 0),
        }
        return read(statement("due_by_key", schema), by=by, **given)

    running: list[Any] = []
    if want.slots is not None or want.key_slots is not None:
        running = read(
            f"SELECT limit_key, slot, key_slot FROM {quoted(schema)}.task_queue "
            "WHERE leased_by IS NOT NULL AND pipeline = %(pipeline)s AND type = %(phase)s"
        )
    return count_claimable(want, running, count, first, keys_after, of_keys)
