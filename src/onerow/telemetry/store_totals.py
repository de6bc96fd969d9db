"""Outcomes of all workers since this process began to read them, summed from the statistics in the store."""

from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from onerow.engine.control.stats import STATS, Outcomes, minute_of
from onerow.ports import Store

K = TypeVar("K")
_BACK = timedelta(minutes=3)  # workers write a minute's counts some seconds after it has ended
_COUNTS = ("done", "failed", "retried", "cancelled", "put_off", "rescued")


class StoreTotals:
    """Counters that only grow, as Prometheus needs them; the store has counts per minute and worker."""

    def __init__(self) -> None:
        self.totals: dict[tuple[str, str], Outcomes] = {}
        self._seen: dict[str, Outcomes] = {}
        self._read_at: datetime | None = None

    def read(self, store: Store) -> None:
        """Add what workers wrote since the last read."""
        now = store.now()
        since = minute_of((self._read_at or now) - _BACK)
        seen: dict[str, Outcomes] = {}
        for note in store.notes(STATS, since=since):
            _, pipeline, phase, _ = note.name.split("/", 3)
            found = msgspec.convert(note.body, Outcomes, strict=False)
            # The first read only notes where the counts stand: those of before belong to earlier servers.
            new = _difference(found, found if self._read_at is None else self._seen.get(note.name))
            self.totals.setdefault((pipeline, phase), Outcomes()).add(new)
            seen[note.name] = found
        self._seen, self._read_at = seen, now


def _difference(found: Outcomes, before: Outcomes | None) -> Outcomes:
    if before is None:
        return found
    counts = {name: getattr(found, name) - getattr(before, name) for name in _COUNTS}
    return Outcomes(
        **counts, run=_less(found.run, before.run), wait=_less(found.wait, before.wait),
        whole=_less(found.whole, before.whole), errors=_less(found.errors, before.errors),
    )  # fmt: skip


def _less(found: dict[K, int], before: dict[K, int]) -> dict[K, int]:
    return {name: count - before.get(name, 0) for name, count in found.items()}
