"""How many tasks a claim could lease, for stores whose claim can't be asked without writing."""

from collections.abc import Callable, Iterable, Sequence

from onerow.core.slots import Held, PhaseSlots
from onerow.ports import PhaseClaim

Due = tuple[str, str]
"""The id and the limit_key of a due task."""
Key = tuple[str, int]
"""A limit_key, and a priority at which tasks with that key wait."""

_KEYS = 200  # read at once
_BATCHES = 20  # of keys


def count_claimable(
    want: PhaseClaim,
    running: Iterable[Held],
    count: Callable[[int], int],
    first: Callable[[int], Sequence[Due]],
    keys_after: Callable[[str, int], Sequence[Key]],
    of_keys: Callable[[Sequence[Key]], Sequence[Due]],
) -> int:
    """Return how many due tasks the limits admit, at most `want.limit`.

    count: the number of due tasks up to a bound. first: the first due tasks in claim order. keys_after: the next keys
    with waiting tasks. of_keys: the first due tasks of these keys.
    """
    slots = PhaseSlots(want.slots, want.key_slots, running)
    limit = want.limit if slots.free is None else min(want.limit, slots.free)
    if limit <= 0:
        return 0
    if want.key_slots is None:
        return count(limit)
    admitted: set[str] = set()

    def offer(tasks: Iterable[Due]) -> None:
        for task_id, key in tasks:
            if len(admitted) < limit and task_id not in admitted and slots.take(key) is not None:
                admitted.add(task_id)

    page = 2 * limit + 50
    found = first(page)
    offer(found)
    after = ""
    for _ in range(_BATCHES):
        # A short page was the last one. Else tasks of full keys may have filled it: look at the next keys.
        if len(admitted) >= limit or len(found) < page:
            break
        keys = keys_after(after, _KEYS)
        offer(of_keys([key for key in keys if not slots.is_full(key[0])]))
        if len(keys) < _KEYS:
            break
        # The last key may have more priorities, so the next batch starts with it.
        after = next((key for key, _ in reversed(keys) if key != keys[-1][0]), keys[-1][0])
    return len(admitted)
