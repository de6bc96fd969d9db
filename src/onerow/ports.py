"""The protocols that the engine needs: stores and wakers, with their contracts.

A store contains no rules: it inserts, claims and swaps. Every atomic step writes one row. A lost race is an answer,
not an exception.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from onerow.core.filters import Filter, Order
from onerow.core.messages import Message, Request
from onerow.core.status import WAITING, Status
from onerow.core.task import Task

# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────


class PhaseClaim(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks of one phase a claim may take, with the limits of the phase."""

    pipeline: str
    phase: str
    limit: int  # maximum number of tasks
    lease_for: timedelta
    slots: int | None = None  # the phase's limit in force, over all workers
    key_slots: int | None = None  # the same for each limit_key


class Claim(msgspec.Struct, frozen=True):
    """A request for due, unparked tasks of some phases, ordered by priority, run_at and id; only those in `ids` if given.

    The phases are served in their order until `limit` tasks in total are found.
    """

    worker: str
    phases: Sequence[PhaseClaim]
    ids: Sequence[str] | None = None
    limit: int | None = None


class Move(msgspec.Struct, frozen=True, gc=False):
    """A changed task to write; the store writes it only if its version is still that of `before`."""

    before: Task
    after: Task
    # Write only if the lease has expired by the store's clock at the time of the write, and the write waited at most
    # one second for a lock: the holder's heartbeat may be waiting for the same lock and has precedence.
    if_dead: bool = False
    # Delete the row, with its output, instead of writing `after`; the answer is Swapped(after) all the same.
    remove: bool = False


class Lease(msgspec.Struct, frozen=True):
    """A worker's lease on a task; the token distinguishes it from earlier and later leases."""

    task_id: str
    token: int


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Inserted(msgspec.Struct, frozen=True):
    """The task was inserted."""

    task: Task


class Existing(msgspec.Struct, frozen=True):
    """The task was not inserted, because this one has the same id or holds the same unique key."""

    task: Task


class Swapped(msgspec.Struct, frozen=True, gc=False):
    """The move was written; `task` is the stored task."""

    task: Task


class Stale(msgspec.Struct, frozen=True):
    """Not written: the stored version differs, the row is gone, or (with if_dead) the lease has not expired."""

    task_id: str


class Conflict(msgspec.Struct, frozen=True):
    """Not written: another task holds the unique key."""

    task_id: str
    other_id: str


class Held(msgspec.Struct, frozen=True):
    """The lease was extended; `version` is the row's version after the write."""

    task_id: str
    version: int
    leased_until: datetime
    cancel_requested: bool


class Lost(msgspec.Struct, frozen=True):
    """Another worker holds the lease now, or it was released."""

    task_id: str


class LeaseRecord(msgspec.Struct, frozen=True):
    """A lease without its task."""

    task_id: str
    pipeline: str
    phase: str
    token: int
    leased_by: str
    leased_until: datetime


class Page(msgspec.Struct, frozen=True):
    """Some tasks and the cursor of the next page."""

    tasks: list[Task]  # at most `limit`
    next: str | None = None  # pass as `after` to get the next page; None: this is the last


class TaskCount(msgspec.Struct, frozen=True):
    """The number of tasks of one pipeline, phase, status and `parked`."""

    pipeline: str
    phase: str
    status: Status  # their status
    parked: bool  # whether they wait for a signal or for children
    count: int  # how many
    oldest: datetime | None = None  # the earliest run_at of waiting tasks


def count_tasks(tasks: Iterable[Task]) -> list[TaskCount]:
    """Count tasks that were read, by pipeline, phase, status and parked."""
    counts: Counter[tuple[str, str, Status, bool]] = Counter()
    oldest: dict[tuple[str, str, Status, bool], datetime] = {}
    for task in tasks:
        group = (task.pipeline, task.phase, task.status, task.parked)
        counts[group] += 1
        if task.status is WAITING:
            oldest[group] = min(task.run_at, oldest.get(group, task.run_at))
    return [TaskCount(*group, count, oldest.get(group)) for group, count in sorted(counts.items())]


class StoreCounts(msgspec.Struct, frozen=True):
    """The numbers of all tasks of a store; counts of very many open tasks may be a few seconds old."""

    counts: list[TaskCount]
    ended_at: datetime  # when ended tasks were counted; now, if their counts are exact


class Search(msgspec.Struct, frozen=True):
    """A page of a search that may have stopped early, because its time limit was reached."""

    tasks: list[Task]
    next: str | None = None  # cursor to continue (None: all rows were scanned)
    looked_back_to: datetime | None = None  # the time of the last row scanned, if the time limit was reached
    looked_at: int = 0  # the approximate number of rows scanned


class Finding(msgspec.Struct, frozen=True):
    """The result of one check: `bad` breaks a guarantee, `slow` costs speed, `good` is correct."""

    level: Literal["good", "slow", "bad"]
    what: str
    fix: str = ""


class Migration(msgspec.Struct, frozen=True):
    """The schema number of a store, the one that this code knows, and the statements between them."""

    stored: int  # 0: the store has no onerow tables
    known: int
    sql: str = ""
    min_code: int = 0  # code must know at least this schema number to use the store

    def finding(self) -> Finding | None:
        """Return doctor's finding if the stored schema differs from the one that this code knows, else None."""
        if self.stored < self.known:
            return Finding("bad", f"schema {self.stored}, not {self.known}", "onerow migrate")
        if self.min_code > self.known:
            return Finding(
                "bad",
                f"schema {self.stored} needs code that knows schema {self.min_code}; this code knows {self.known}",
                "upgrade onerow here: pip install -U onerow",
            )
        if self.stored > self.known:
            return Finding(
                "slow",
                f"schema {self.stored} is newer than this code, which knows {self.known} and works beside newer code",
                "upgrade onerow here too: pip install -U onerow",
            )
        return None


class StoredSize(msgspec.Struct, frozen=True):
    """How much one part of a store takes on disk. rows: about how many it has, if the server keeps that number."""

    name: str
    kind: Literal["file", "table", "index"]
    bytes: int
    rows: int | None = None


class Note(msgspec.Struct, frozen=True):
    """A small versioned record: definitions, limits, pauses, rates, last cron times, workers, statistics."""

    kind: str
    name: str
    body: Any
    version: int = 0  # of the stored note; 0: it does not exist yet
    updated_at: datetime | None = None


class LogLine(msgspec.Struct, frozen=True):
    """One line of a task's output."""

    task_id: str
    at: datetime  # when it was written
    phase: str
    attempt: int
    level: str  # 'debug', 'info', 'warning' or 'error'; 'out' and 'err' are output
    text: str  # the line without its end
    seq: int = 0  # assigned by the store, increasing within a task


class LogPage(msgspec.Struct, frozen=True):
    """Some lines of one task."""

    lines: list[LogLine]  # the oldest first
    next: int  # pass as `after` to get the next page
    dropped: int = 0  # how many lines before these were deleted, because the log is bounded


SwapAnswer = Swapped | Stale | Conflict


# ── protocols ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Waker(Protocol):
    """Wakes a worker process on transitions that core.wakeups names; a lost wake-up only delays the work."""

    def wait(self, timeout: float) -> bool:
        """Wait for a wake-up, at most `timeout` seconds; return whether there was one."""

    def poke(self) -> None:
        """Wake the waiting thread of this process now."""

    def close(self) -> None: ...


class Store(Protocol):
    """The database. Thread-safe; raises only the exceptions in core.errors, never those of a driver."""

    @property
    def url(self) -> str:
        """The absolute URL with its password masked."""

    def prepare(self) -> None:
        """Create or migrate the schema; safe to call from many processes at once."""

    def check(self) -> None:
        """Raise CodeTooOld if the schema is too new for this code, SchemaMissing if the store was never prepared."""

    def now(self) -> datetime:
        """Return the time of the store's clock, to the millisecond."""

    def insert(self, tasks: Sequence[Task], *, tx: Any = None) -> list[Inserted | Existing]:
        """Insert rows in one transaction (the caller's, if `tx` is given); return an answer for each."""

    def claim(self, claim: Claim) -> list[Task]:
        """Lease the first due tasks to the worker atomically; each lease starts now by the store's clock."""

    def swap(self, moves: Sequence[Move]) -> list[SwapAnswer]:
        """Compare and swap each row: write a move only if the row still has the version of `before`."""

    def settle_and_claim(self, moves: Sequence[Move], claim: Claim | None) -> tuple[list[SwapAnswer], list[Task]]:
        """Swap, then claim; in one transaction where the store can, so that a busy worker needs one round trip."""

    def extend(self, leases: Sequence[Lease], lease_for: timedelta) -> list[Held | Lost]:
        """Heartbeat: extend the leases of processing rows with these tokens to `lease_for` after the store's time."""

    def leases(self, *, pipeline: str | None = None, phase: str | None = None, limit: int) -> list[LeaseRecord]:
        """Return the leases of processing tasks, earliest end first; reads no payloads."""

    def fetch(self, ids: Sequence[str]) -> list[Task]:
        """Return the existing tasks with these ids, in any order."""

    def find(self, where: Filter, *, limit: int = 100, order: Order = "newest", after: str | None = None) -> Page:
        """Return one page of matching tasks; `after` is the `next` of an earlier page."""

    def due(self, pipeline: str, phase: str, by: datetime, limit: int) -> list[Task]:
        """Return the first due, unparked tasks of a phase in claim order, without claiming them.

        The cost is independent of the number of tasks that are not due yet.
        """

    def ready(self, phases: AbstractSet[tuple[str, str]], by: datetime) -> list[tuple[str, str]]:
        """Return those of the (pipeline, phase) pairs that have due, unparked tasks, possibly with some that have none.

        The cost grows with the number of phases with waiting tasks, not with the number of given pairs.
        """

    def claimable(self, want: PhaseClaim, by: datetime) -> int:
        """Return how many tasks a claim of the phase could lease at a time, at most `want.limit`, without claiming any.

        It finds them as a claim does: the cost is independent of the tasks that are not due yet or behind full limits.
        """

    def count(self, where: Filter) -> list[TaskCount]:
        """Return the number of matching tasks by pipeline, phase, status and parked.

        With `parent_id` each child is counted exactly once, even if it changes its status during the count. Without
        it, a store without snapshots may count such a task twice or not at all.
        """

    def remove(self, tasks: Sequence[Task]) -> int:
        """Delete the rows that still have the given version, with their log lines; return their number."""

    def remove_log(self, task_ids: Sequence[str]) -> None:
        """Delete the output lines of tasks."""

    def append_log(self, lines: Sequence[LogLine]) -> None:
        """Store output lines; the oldest lines of a task beyond its limit are deleted."""

    def read_log(self, task_id: str, *, after: int = 0, limit: int = 1000, tail: int | None = None) -> LogPage:
        """Return the lines after a position, or the last `tail` lines."""

    def notes(self, kind: str, *, since: str = "", before: str = "") -> list[Note]:
        """Return the notes of a kind ordered by name, with since <= name < before where given."""

    def write_notes(self, notes: Sequence[Note]) -> list[bool]:
        """Write each note if its version is still the stored one (0: none stored); return whether it was written."""

    def drop_notes(self, kind: str, names: Sequence[str]) -> int:
        """Delete notes; return their number."""

    def waker(self) -> Waker:
        """Return a new waker for one worker process."""

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""


@runtime_checkable
class Searchable(Protocol):
    """Optional for stores: queries for user interfaces whose cost doesn't grow with the table.

    Without it the engine uses `count` and `find`.
    """

    def store_counts(self) -> StoreCounts:
        """Return the numbers of all tasks in the store."""

    def search(
        self,
        where: Filter,
        *,
        limit: int = 100,
        order: Order = "newest",
        after: str | None = None,
        within: timedelta,
    ) -> Search:
        """Like `find`, but stop after the time `within` and return how far the search came.

        The order `due` has no index over all tasks: it reads every match, without a time limit.
        """


@runtime_checkable
class Identified(Protocol):
    """Optional for stores: an identity that can be compared without opening the store."""

    def identity(self) -> object:
        """Return a value that is equal for two URLs of the same database; None if it does not exist yet."""


@runtime_checkable
class Administrable(Protocol):
    """Optional for stores: operations for administrators."""

    def inspect(self, *, quick: bool = False) -> list[Finding]:
        """Check, read-only, whether onerow's guarantees hold on this store.

        quick: only checks whose cost does not grow with the data, for a page that is shown often.
        """

    def migration(self) -> Migration:
        """Return what `prepare` would do, without changing anything."""

    def backup(self, path: Path, progress: Callable[[float], None]) -> None:
        """Write a complete, consistent copy while others write; call `progress` with 0 to 1."""


@runtime_checkable
class Sized(Protocol):
    """Optional for stores: how much they take on disk."""

    def sizes(self) -> list[StoredSize]:
        """Return the sizes of files, or of tables and indexes, largest first; the cost does not grow with the data."""


@runtime_checkable
class Inbox(Protocol):
    """A source of messages that ask for tasks. The row is the truth: a message is acknowledged once its row is stored.

    Several receivers, in threads and processes, may use one inbox. An inbox that can't be reached raises
    InboxUnavailable.
    """

    @property
    def name(self) -> str:
        """What people call it in `onerow workers` and logs; the same in all processes."""

    def receive(self, wait: float) -> list[Message]:
        """Return the next messages, at most one batch; wait up to `wait` seconds for the first."""

    def read(self, message: Message) -> Request:
        """Return what a message asks for; raise BadMessage with the reason."""

    def acknowledge(self, messages: Sequence[Message]) -> None:
        """Remove messages whose rows are stored. One that can't be removed is delivered again, which does no harm."""

    def reject(self, message: Message, reason: str) -> None:
        """Set a message aside, with the reason, so that it is neither lost nor delivered again."""

    def release(self, messages: Sequence[Message], after: float) -> None:
        """Have messages delivered again, not before `after` seconds have passed."""

    def interrupt(self) -> None:
        """Make a `receive` that waits in another thread return soon."""

    def close(self) -> None:
        """Release connections and locks."""


@runtime_checkable
class MessageQueue(Protocol):
    """Optional for inboxes: a message queue, which hides a delivered message for a while and then delivers it again."""

    @property
    def receivers(self) -> int:
        """How many threads of a worker receive."""

    @property
    def hold_for(self) -> float:
        """Seconds for which a delivered message is hidden, if it is to be held until its task has ended.

        0: it is acknowledged as soon as its row is stored. `release` hides a held message for longer.
        """

    @property
    def in_flight(self) -> int:
        """How many messages a worker may hold."""

    def check(self) -> None:
        """Check the settings against the server; raise BadInput, or InboxUnavailable if it can't be asked now."""
