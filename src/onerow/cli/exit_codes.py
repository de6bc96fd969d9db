"""Exit codes of the commands."""

from onerow.core.errors import (
    BadInput,
    CodeTooOld,
    InboxUnavailable,
    QueueRelocated,
    ScalingUnavailable,
    StoreError,
    StoreMoved,
)

EXIT_CODES = {
    0: "done",
    1: "some of what was asked was refused, or doctor or check found something bad",
    2: "the command line itself is wrong: an unknown option, a missing argument",
    64: "an argument, a name, a URL, a query or the app is wrong; nothing was done",
    66: "the database file was deleted, moved or replaced while it was in use",
    69: "the store, inbox or group of workers can't be reached, or can't be used as it is",
    70: "a worker ended and left work in progress behind (it will be rescued)",
    71: "worker processes kept ending before they were ready; their output has the cause",
    75: "a worker gave way because of work that would not stop; start it again",
    78: "the store was migrated by a newer onerow (upgrade it here), or its queue was moved to another store",
    130: "interrupted",
}
"""Every exit code of the commands."""


def exit_code(error: BaseException) -> int:
    match error:
        case KeyboardInterrupt():
            return 130
        case BadInput():
            return 64
        case CodeTooOld() | QueueRelocated():
            return 78
        case StoreMoved():
            return 66
        case StoreError() | InboxUnavailable() | ScalingUnavailable():
            return 69
    return 1
