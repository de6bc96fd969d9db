"""How many tasks stand where: as the store tells, or counted here and remembered for some seconds."""

from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from onerow.core.errors import StoreError
from onerow.core.status import ENDS, OPEN
from onerow.ports import Census, Filter, Glance, Note, Store, Tally

CENSUS = "census"
_REMEMBERED_FOR = timedelta(seconds=10)


def take_census(store: Store, user_id: str | None) -> Census:
    """Every task by place; one user's are counted exactly, since an index finds them."""
    now = store.now()
    if user_id is not None:
        return Census(store.count(Filter(user_id=user_id)), now)
    if isinstance(store, Glance):
        return store.census()
    ended, at = _ended(store, now)
    return Census(store.count(Filter(statuses=OPEN)) + ended, at)


def _ended(store: Store, now: datetime) -> tuple[list[Tally], datetime]:
    note = next(iter(store.notes(CENSUS)), None)
    if note is not None and note.updated_at is not None and now - note.updated_at < _REMEMBERED_FOR:
        return msgspec.convert(note.body, list[Tally]), note.updated_at
    counted = store.count(Filter(statuses=ENDS))
    with suppress(StoreError):  # it may be read-only to us: then everyone counts for himself
        store.write_notes([Note(CENSUS, "ended", msgspec.to_builtins(counted), note.version if note else 0)])
    return counted, now
