"""Slots of limits: which slots are free, and which tasks a claim may start.

A phase may limit how many of its tasks run, in total (`slots`) and for each limit_key (`key_slots`). A running task
holds a slot of each limit; unique indexes keep a slot from having two holders. After a limit was lowered, or set for
the first time, running tasks may hold slots above it or none. They count against the limit all the same.
"""

from collections.abc import Iterable, Sequence

Held = tuple[str, int | None, int | None]
"""The limit_key, slot and key_slot of a running task."""


def free_slots(limit: int, used: Sequence[int | None]) -> list[int]:
    """Return the slots that more tasks may take, lowest first; `used` has one entry for each running task."""
    taken = set(used)
    return [slot for slot in range(limit) if slot not in taken][: max(0, limit - len(used))]


class PhaseSlots:
    """The free slots of one phase, as a claim has read them, less those that it takes."""

    def __init__(self, slots: int | None, key_slots: int | None, running: Iterable[Held]) -> None:
        used: list[int | None] = []
        self._used_by_key: dict[str, list[int | None]] = {}
        for key, slot, key_slot in running:
            used.append(slot)
            self._used_by_key.setdefault(key, []).append(key_slot)
        self._free = None if slots is None else free_slots(slots, used)[::-1]  # the next to take is the last
        self._key_slots = key_slots
        self._free_by_key: dict[str, list[int]] = {}

    @property
    def free(self) -> int | None:
        """How many more tasks the limit of the phase admits; None: it has no limit."""
        return None if self._free is None else len(self._free)

    def is_full(self, key: str) -> bool:
        """Whether the limit of a key admits no more tasks; tasks without a key have no such limit."""
        return self._key_slots is not None and key != "" and not self._free_for(key)

    def take(self, key: str) -> tuple[int | None, int | None] | None:
        """Take the lowest slot and key_slot for a task with this limit_key; return None if a limit does not admit it."""
        if self._free == [] or self.is_full(key):
            return None
        key_slot = self._free_for(key).pop() if self._key_slots is not None and key else None
        return None if self._free is None else self._free.pop(), key_slot

    def _free_for(self, key: str) -> list[int]:
        if key not in self._free_by_key:
            self._free_by_key[key] = free_slots(self._key_slots or 0, self._used_by_key.get(key, ()))[::-1]
        return self._free_by_key[key]
