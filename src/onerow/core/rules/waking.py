"""Which moves other workers should hear of at once, rather than at their next poll."""

from onerow.core.status import WAITING
from onerow.core.task import Task


def wakes(before: Task, after: Task) -> bool:
    """Whether a move gives other workers something to do: a task, a free slot, a cancel, an ended child."""
    return (
        (after.status is WAITING and after.awaiting is None)
        or (before.slot is not None and after.slot is None)
        or (before.key_slot is not None and after.key_slot is None)
        or (after.cancel_requested and not before.cancel_requested)
        or (after.parent_id is not None and after.ended)
    )
