"""Writes whose answer was lost: what became of an attempt whose holder does not know whether its outcome was written."""

from collections.abc import Callable
from datetime import datetime

from onerow.core.corruption import shown
from onerow.core.history import added
from onerow.core.status import PROCESSING
from onerow.core.task import Task


def recorded(row: Task, before: Task, decide: Callable[[datetime], Task | None]) -> Task | None:
    """Return the task as its attempt left it, if the row shows that the outcome was written, else None.

    before: the task as the attempt last knew it. decide: the rule that returns the task after the outcome, by its time.
    Later writes to the row, by this or another worker, change nothing in the answer.
    """
    known = shown(before, "history")
    for entry in added(known, shown(row, "history")):
        if entry.by == before.leased_by:
            after = decide(entry.when)
            # The rule writes this entry at this time, so no other attempt and no other outcome has written it.
            if after is not None and list(added(known, after.history)) == [entry]:
                return after
    # Only its holder ends a lease without another token. Not every outcome is in the history.
    return row if row.token == before.token and row.status is not PROCESSING else None
