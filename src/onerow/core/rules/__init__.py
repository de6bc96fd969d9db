"""The rules: each takes a task and returns the changed task. No store, no clock, no log.

A claim is the only move that a store makes itself, because it selects the tasks; `claimed` defines what it writes.
A rule raises IllegalMove if the task's status doesn't allow it.
"""

from onerow.core.rules.attempts import (
    CRASH_LIMIT,
    claimed,
    complete,
    crash,
    decide,
    fail,
    finish,
    hand_back,
    interrupt,
    park,
    report,
    rescue,
    stop_cancelled,
    uncount_rescue,
    wait,
)
from onerow.core.rules.chosen import cancel_itself, skip, sleep, snooze
from onerow.core.rules.lost_answers import recorded
from onerow.core.rules.operations import (
    annotate,
    cancel,
    fail_by_hand,
    finish_by_hand,
    replay,
    reschedule,
    retry,
    set_priority,
    signal,
)
from onerow.core.rules.sweeps import (
    bury,
    children_ended,
    expire,
    gather,
    pass_,
    release,
    release_key,
    rename,
    was_put_off,
)
from onerow.core.rules.transitions import check_priority, check_retry_count, due_time, entering

__all__ = [
    "CRASH_LIMIT",
    "annotate",
    "bury",
    "cancel",
    "cancel_itself",
    "check_priority",
    "check_retry_count",
    "children_ended",
    "claimed",
    "complete",
    "crash",
    "decide",
    "due_time",
    "entering",
    "expire",
    "fail",
    "fail_by_hand",
    "finish",
    "finish_by_hand",
    "gather",
    "hand_back",
    "interrupt",
    "park",
    "pass_",
    "recorded",
    "release",
    "release_key",
    "rename",
    "replay",
    "report",
    "reschedule",
    "rescue",
    "retry",
    "set_priority",
    "signal",
    "skip",
    "sleep",
    "snooze",
    "stop_cancelled",
    "uncount_rescue",
    "wait",
    "was_put_off",
]
