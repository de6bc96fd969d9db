"""The rules: each takes a task and returns the changed task. No store, no clock, no log.

A claim is the only move that a store makes itself, because it selects the tasks; `claimed` defines what it writes.
A rule raises IllegalMove if the task's status doesn't allow it.
"""

from onerow.core.rules.attempts import (
    CRASH_LIMIT,
    advance,
    claimed,
    complete,
    crash,
    decide,
    fail,
    hand_back,
    interrupt,
    park,
    report,
    rescue,
    snooze,
    stop_cancelled,
    wait,
)
from onerow.core.rules.operations import (
    annotate,
    cancel,
    fail_by_hand,
    finish,
    replay,
    reprioritise,
    reschedule,
    retry,
    signal,
)
from onerow.core.rules.sweeps import bury, children_ended, expire, gather, pass_, release_key, rename
from onerow.core.rules.transitions import check_priority, check_retry_count, due_time, entering

__all__ = [
    "CRASH_LIMIT",
    "advance",
    "annotate",
    "bury",
    "cancel",
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
    "gather",
    "hand_back",
    "interrupt",
    "park",
    "pass_",
    "release_key",
    "rename",
    "replay",
    "report",
    "reprioritise",
    "reschedule",
    "rescue",
    "retry",
    "signal",
    "snooze",
    "stop_cancelled",
    "wait",
]
