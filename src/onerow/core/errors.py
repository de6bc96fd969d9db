"""Every error that onerow raises.

OnerowError
├── BadInput                    (also a ValueError) a value that can't be stored or done; names the field and the fix
│   ├── BadPayload              not a JSON value, too large, or not of the declared type
│   ├── PipelineError           a mistake in a pipeline's definition
│   └── UnknownName             a pipeline, phase, status or task that isn't there
├── IllegalMove                 this status doesn't allow that act
├── CorruptRow                  a row that can't be read: it was quarantined, or has to be mended
├── KeyTaken                    a retry or replay whose unique key another task holds meanwhile
├── LostRace                    someone else changed the task again and again while we tried
├── LeaseLost                   the lease is another's now, or nobody's
└── StoreError
    ├── BadStoreUrl             (also BadInput)
    ├── StoreUnavailable        can't be reached now; trying again may help
    ├── RowRefused              the store refuses the values of one of the rows, and nothing was written
    ├── RetryTransaction        the caller's transaction must be rolled back and tried again
    ├── StoreReadOnly, StoreFull
    ├── StoreMoved              the database file was deleted, moved or replaced while it was open
    ├── QueueRelocated          `onerow move` carried the queue to another store, which takes its new tasks
    └── CodeTooOld, SchemaMissing

What handlers raise to onerow stands in outcomes.py.
"""


class OnerowError(Exception):
    """The root of what onerow raises to its caller."""


class BadInput(OnerowError, ValueError):
    """A value that can't be taken; nothing was stored."""

    def __init__(self, message: str, *, field: str = "") -> None:
        self.field = field
        super().__init__(message)


class BadPayload(BadInput):
    """A payload, result or metadata that is no JSON value, too large, or not of the declared type."""


class PipelineError(BadInput):
    """A mistake in the definition of a pipeline, found when it is built."""


class UnknownName(BadInput):
    """A pipeline, phase, status or task that isn't there."""


class IllegalMove(OnerowError):
    """The task's status doesn't allow that act."""

    def __init__(self, message: str, *, task_id: str = "", status: str = "") -> None:
        self.task_id = task_id
        self.status = status
        super().__init__(message)


class CorruptRow(OnerowError):
    """The row can't be read; `onerow doctor` names it and says how to mend it."""

    def __init__(self, message: str, *, task_id: str = "") -> None:
        self.task_id = task_id
        super().__init__(message)


class KeyTaken(OnerowError):
    """The task's unique key belongs to another task that has not ended."""

    def __init__(self, task_id: str, other_id: str, unique_key: str) -> None:
        self.task_id = task_id
        self.other_id = other_id
        self.unique_key = unique_key
        super().__init__(
            f"task {task_id} can't come back: its unique key {unique_key!r} is held by task {other_id} meanwhile; "
            f"cancel or wait for that one first"
        )


class LostRace(OnerowError):
    """The task kept changing while we tried to act on it."""


class LeaseLost(OnerowError):
    """The lease is no longer ours, so nothing was written."""


class StoreError(OnerowError):
    """The store could not do what it was asked."""


class BadStoreUrl(StoreError, BadInput):
    """A store URL that names no store."""


class StoreUnavailable(StoreError):
    """The store can't be reached now; the same call may succeed later."""


class RowRefused(StoreError):
    """The store refuses the values of a row; the same call without that row succeeds."""


class RetryTransaction(StoreError):
    """Roll the caller's transaction back and run it again."""


class StoreReadOnly(StoreError):
    """The store can be read and not written."""


class StoreFull(StoreError):
    """No room is left where the store lives."""


class StoreMoved(StoreError):
    """The database file was deleted, moved or replaced while it was open; what is written to it would be lost."""


class QueueRelocated(StoreError):
    """`onerow move` carried the queue to another store; this one accepts no new tasks and no workers."""


class CodeTooOld(StoreError):
    """The store was migrated by a newer onerow that this one can't work beside."""


class SchemaMissing(StoreError):
    """The store has no onerow tables yet, or older ones than this code needs."""
