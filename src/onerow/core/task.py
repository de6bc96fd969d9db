"""The task: one row from its first phase to its last, as an immutable value."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import compress
from operator import ne
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from onerow.core import history, signals, values
from onerow.core.errors import IllegalMove
from onerow.core.history import Entry
from onerow.core.status import ENDS, NEXT, PROCESSING, WAITING, Status
from onerow.core.times import FAR


class Task(msgspec.Struct, frozen=True, gc=False):
    """One row. JSON columns are stored as text (`payload_json` …) and decoded on access (`payload` …)."""

    # identity
    task_id: str
    pipeline: str
    phase: str  # the current or last phase; the column `type`
    user_id: str
    title: str
    parent_id: str | None  # the task that spawned it
    # times
    created_at: datetime  # when it was added
    scheduled_time: datetime | None  # the time that the caller requested
    run_at: datetime  # earliest start; of a parked task, its deadline
    started_at: datetime | None  # when its latest attempt began
    completed_at: datetime | None  # when it ended, however it ended
    updated_at: datetime  # when the row was last written
    elapsed_time: int | None  # milliseconds of the last attempt
    # order
    priority: int
    # state
    status: Status  # one of the five statuses
    awaiting: str | None  # 'signal:NAME' or 'children'
    cancel_requested: bool  # whether a running task was asked to stop
    attempt: int  # claims in this phase
    retry_count: int  # retries in this phase, automatic and manual
    max_retries: int  # the retry budget of the phase
    own_retries: bool  # `add` set max_retries, so no phase changes it
    retry_base: int  # the retry_count at the last manual retry; the budget counts from there
    crash_count: int  # how often its isolated process died in this phase
    rescue_count: int  # how often its worker died or lost the lease since its last outcome in this phase
    generation: int  # how often it was replayed
    error: str | None  # the last error; None after a phase is done
    error_class: str | None
    # lease
    leased_by: str | None  # the worker that holds it
    leased_until: datetime | None  # when its lease ends without a heartbeat
    token: int  # grows with each claim and rescue; only its holder may write
    version: int  # grows with each write
    # limits
    limit_key: str
    slot: int | None  # its slot of the phase's concurrency limit
    key_slot: int | None  # its slot of the per_key limit
    unique_key: str | None  # the key given as `unique`
    unique_for: str | None  # None: until it ends; 'forever'; or a duration after the end
    held_key: str | None  # the unique key while the task holds it; the unique index covers this column
    held_until: datetime | None  # until when an ended task holds its key
    children: int | None  # how many children a parked parent expects
    purged_at: datetime | None  # set on a tombstone: only its keys are left
    # JSON text
    payload_json: str
    results_json: str
    steps_json: str
    signals_json: str
    progress_json: str
    metadata_json: str
    logs_json: str

    @property
    def type(self) -> str:
        """The phase, under the name of its column."""
        return self.phase

    @property
    def payload(self) -> Any:
        """The payload as it was added, as a JSON value."""
        return values.decode(self.payload_json)

    @property
    def results(self) -> dict[str, Any]:
        """The results by phase."""
        return values.decode(self.results_json)  # type: ignore[no-any-return]

    @property
    def result(self) -> Any:
        """The result of the phase in which the task ended."""
        return self.results.get(self.phase) if self.ended else None

    @property
    def steps(self) -> dict[str, Any]:
        """The records of steps, waits and spawned children, by phase."""
        return values.decode(self.steps_json)  # type: ignore[no-any-return]

    @property
    def signals(self) -> list[dict[str, Any]]:
        """The signals that no wait has consumed yet."""
        return signals.kept(self.signals_json)

    @property
    def progress(self) -> Any:
        """The last reported progress: done, total and note; None if there is none."""
        return values.decode(self.progress_json)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the adder."""
        return values.decode(self.metadata_json)  # type: ignore[no-any-return]

    @property
    def history(self) -> list[Entry]:
        """The history, oldest entry first."""
        return history.entries(self.logs_json)

    @property
    def ended(self) -> bool:
        """Whether it is completed, failed or cancelled."""
        return self.status in ENDS

    @property
    def parked(self) -> bool:
        """Whether it waits for a signal or for its children."""
        return self.status is WAITING and self.awaiting is not None

    @property
    def suspect(self) -> bool:
        """Whether the task may have killed or harmed a process; its next attempt runs in an isolated process."""
        return self.rescue_count > 0 or self.crash_count > 0

    @property
    def deadline(self) -> datetime | None:
        """The deadline of a parked task; None if it has none."""
        return self.run_at if self.awaiting is not None and self.run_at < FAR else None

    @property
    def elapsed(self) -> timedelta | None:
        """How long the last attempt took."""
        return None if self.elapsed_time is None else timedelta(milliseconds=self.elapsed_time)

    def to(self, status: Status, now: datetime, **changes: Any) -> Self:
        """Return the task in another status, with changes to other fields."""
        return self.become(status, now, changes)

    def become(self, status: Status, now: datetime, changes: dict[str, Any]) -> Self:
        """Like `to`, but modifies the dict `changes`; the only function that checks NEXT."""
        if status not in NEXT[self.status]:
            raise IllegalMove(
                f"task {self.task_id} is {self.status} and can't become {status}",
                task_id=self.task_id,
                status=self.status,
            )
        if self.status is PROCESSING and status is not PROCESSING:
            # A task that leaves processing releases its lease and its slots.
            changes["leased_by"] = changes["leased_until"] = changes["slot"] = changes["key_slot"] = None
        changes["status"] = status
        changes["updated_at"] = now
        changes["version"] = self.version + 1
        return replace(self, **changes)

    def with_changes(self, now: datetime, **changes: Any) -> Self:
        """Return the task in the same status with some fields changed."""
        return replace(self, updated_at=now, version=self.version + 1, **changes)

    def history_with(self, entry: Entry) -> str:
        """Return the history text with one more entry."""
        return history.append(self.logs_json, entry)


FIELDS: tuple[str, ...] = Task.__struct_fields__
COLUMN: dict[str, str] = {field: "type" if field == "phase" else field.removesuffix("_json") for field in FIELDS}
"""Field of a Task → column (or document key) in a store."""
JSON_FIELDS = tuple(field for field in FIELDS if field.endswith("_json"))
TIME_FIELDS = (
    "created_at",
    "scheduled_time",
    "run_at",
    "started_at",
    "completed_at",
    "updated_at",
    "leased_until",
    "held_until",
    "purged_at",
)

DEFAULTS: dict[str, Any] = {
    "pipeline": "", "user_id": "", "title": "", "parent_id": None, "scheduled_time": None, "started_at": None,
    "completed_at": None, "elapsed_time": None, "priority": 0, "status": WAITING, "awaiting": None,
    "cancel_requested": False, "attempt": 0, "retry_count": 0, "max_retries": 3, "own_retries": False,
    "retry_base": 0, "crash_count": 0, "rescue_count": 0, "generation": 0, "error": None, "error_class": None,
    "leased_by": None, "leased_until": None, "token": 0, "version": 1, "limit_key": "", "slot": None, "key_slot": None,
    "unique_key": None, "unique_for": None, "held_key": None, "held_until": None, "children": None,
    "purged_at": None, "payload_json": "null", "results_json": "{}", "steps_json": "{}", "signals_json": "[]",
    "progress_json": "null", "metadata_json": "{}", "logs_json": "[]",
}  # fmt: skip
"""Default value by field; the columns of a store have the same defaults."""


def non_default_fields(task: Task) -> dict[str, Any]:
    """Return the fields whose values differ from the defaults."""
    values = _values(task)
    return dict(compress(zip(FIELDS, values, strict=True), map(ne, values, _DEFAULTS_IN_ORDER)))


def changed_fields(before: Task, after: Task) -> tuple[str, ...]:
    """Return the fields in which two versions of one task differ."""
    return tuple(compress(FIELDS, map(ne, _values(before), _values(after))))


def columns_of(tasks: Iterable[Task]) -> list[tuple[Any, ...]]:
    """Return the values of all tasks by field, in the order of FIELDS."""
    return list(zip(*map(_values, tasks), strict=True))


def changed_columns(before: Iterable[Task], after: Iterable[Task]) -> dict[str, tuple[Any, ...]]:
    """Return each field in which at least one task differs from its earlier version, with the later values of all tasks.

    Comparing two columns of hundreds of values costs less than comparing hundreds of pairs of tasks.
    """
    columns = zip(FIELDS, columns_of(before), columns_of(after), strict=True)
    return {field: values for field, were, values in columns if were != values}


_values = msgspec.structs.astuple
_NO_DEFAULT = object()  # equal to no value
_DEFAULTS_IN_ORDER = tuple(DEFAULTS.get(field, _NO_DEFAULT) for field in FIELDS)
