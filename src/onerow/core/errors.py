"""Every error that onerow raises.

OnerowError
├── BadInput                    (also a ValueError) an invalid value; names the field
│   ├── BadPayload              not a JSON value, too large, or not of the declared type
│   ├── BadQuery                a mistake in a query, with its column
│   ├── PipelineError           a mistake in a pipeline's definition
│   └── UnknownName             an unknown pipeline, phase, status or task
├── IllegalMove                 the task's status doesn't allow the operation
├── CorruptRow                  an unreadable row: it was quarantined, or must be repaired
├── KeyTaken                    a retry or replay whose unique key another task holds now
├── LostRace                    other processes changed the task during each try
├── WaitTimeout                 (also a TimeoutError) a task did not end within the time of `wait`
├── ResourceError               a resource of handlers could not be made
├── LeaseLost                   another worker holds the lease now, or it was released
├── InboxUnavailable            can't be reached now; the worker retries
├── ScalingUnavailable          the group of workers can't be asked or changed now
└── StoreError
    ├── BadStoreUrl             (also BadInput)
    ├── StoreUnavailable        can't be reached now; a retry may help
    ├── RowRefused              the store rejects the values of one row; nothing was written
    ├── RetryTransaction        the caller must roll back its transaction and run it again
    ├── StoreReadOnly, StoreFull
    ├── StoreMoved              the database file was deleted, moved or replaced while it was open
    ├── QueueRelocated          `onerow move` moved the queue to another store, which accepts its new tasks
    └── CodeTooOld, SchemaMissing

The message says what is wrong. What to do about it is a field, `fix`, which a traceback shows below the message.
The exceptions that handlers raise are in outcomes.py.
"""


class OnerowError(Exception):
    """Base class of all errors that onerow raises to its caller. fix: what to do about it; '' if nothing general helps."""

    fix: str = ""

    def __init__(self, message: str = "", *, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix or self.fix
        if self.fix:
            self.add_note(self.fix)


def with_fix(error: BaseException) -> str:
    """Return the message and the fix in one line, for a log line or the stored error of a task."""
    fix = error.fix if isinstance(error, OnerowError) else ""
    return f"{error}; {fix}" if fix else str(error)


class BadInput(OnerowError, ValueError):
    """An invalid value; nothing was stored."""

    def __init__(self, message: str, *, fix: str = "", field: str = "") -> None:
        self.field = field
        super().__init__(message, fix=fix)


class BadPayload(BadInput):
    """A payload, result or metadata that is not a JSON value, is too large, or does not have the declared type."""


class BadQuery(BadInput):
    """A mistake in a query; `column` counts from 1."""

    def __init__(self, problem: str, column: int, *, fix: str = "") -> None:
        self.column = column
        super().__init__(f"query, column {column}: {problem}", fix=fix, field="query")


class PipelineError(BadInput):
    """A mistake in a pipeline's definition, found when the pipeline is built."""


class UnknownName(BadInput):
    """An unknown pipeline, phase, status or task."""


class IllegalMove(OnerowError):
    """The task's status doesn't allow the operation."""

    def __init__(self, message: str, *, fix: str = "", task_id: str = "", status: str = "") -> None:
        self.task_id = task_id
        self.status = status
        super().__init__(message, fix=fix or f"see its status: onerow show {task_id or 'ID'}")


class CorruptRow(OnerowError):
    """The row can't be read; `onerow doctor` names it and says how to repair it."""

    def __init__(self, message: str, *, fix: str = "", task_id: str = "") -> None:
        self.task_id = task_id
        super().__init__(message, fix=fix)


class KeyTaken(OnerowError):
    """Another task that has not ended holds the task's unique key."""

    def __init__(self, task_id: str, other_id: str, unique_key: str) -> None:
        self.task_id = task_id
        self.other_id = other_id
        self.unique_key = unique_key
        super().__init__(
            f"cannot requeue task {task_id}: unique key {unique_key!r} is now held by task {other_id}",
            fix="cancel that task or wait until it ends",
        )


class LostRace(OnerowError):
    """Other processes changed the task during each try of the operation."""

    fix = "try again"


class WaitTimeout(OnerowError, TimeoutError):
    """A task did not end within the time that the caller was willing to wait; the task continues."""

    def __init__(self, task_id: str, status: str, phase: str, timeout: str) -> None:
        self.task_id = task_id
        self.status = status
        self.phase = phase
        super().__init__(
            f"task {task_id} did not end within {timeout}: it is {status} in {phase} and continues",
            fix=f"see what it waits for: onerow why {task_id}",
        )


class LeaseLost(OnerowError):
    """The caller no longer holds the lease; nothing was written."""


class ResourceError(OnerowError):
    """A resource of handlers could not be made; no task has run with it."""


class StoreError(OnerowError):
    """The store could not execute the operation."""


class BadStoreUrl(StoreError, BadInput):
    """An invalid store URL."""


class StoreUnavailable(StoreError):
    """The store can't be reached now; the same call may succeed later."""

    fix = "check that it runs and that the URL is right; the same call may succeed later"


class RowRefused(StoreError):
    """The store rejects the values of a row; the same call without that row succeeds."""


class RetryTransaction(StoreError):
    """The caller must roll back its transaction and run it again."""

    fix = "roll back the transaction and run it again"


class StoreReadOnly(StoreError):
    """The store can be read but not written."""


class StoreFull(StoreError):
    """The store's disk or quota is full."""

    fix = "make room; nothing was lost"


class StoreMoved(StoreError):
    """The database file was deleted, moved or replaced while it was open; further writes would be lost."""


class QueueRelocated(StoreError):
    """`onerow move` moved the queue to another store; this one accepts no new tasks and no workers."""


class CodeTooOld(StoreError):
    """A newer version of onerow migrated the store, and this version is not compatible with it."""

    fix = "upgrade onerow here: pip install -U onerow"


class SchemaMissing(StoreError):
    """The store has no onerow tables, or their schema is older than this code needs."""

    fix = "run: onerow migrate"


class InboxUnavailable(OnerowError):
    """The inbox can't be reached now; its messages are received when it can be reached again."""


class ScalingUnavailable(OnerowError):
    """The group of workers (an Auto Scaling group, an ECS service) can't be asked or changed now."""
