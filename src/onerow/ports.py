"""What the engine asks of the world: stores and wakers. Protocols with their contracts.

A store decides nothing: it inserts, claims and swaps; every atomic step touches one row; losing is an answer.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from onerow.core.status import WAITING, Status
from onerow.core.task import Task

# ── what is asked ─────────────────────────────────────────────────────────────────────────────────────────────────


class PhaseClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of one phase that a claimer could use."""

    pipeline: str
    phase: str
    limit: int  # how many at the most
    lease_for: timedelta
    slots: int | None = None  # the limit in force for this phase, over all claimers
    key_slots: int | None = None  # the same for each limit_key


class Claim(msgspec.Struct, frozen=True):
    """Due, unparked tasks of some phases, in order of priority, run_at and id; of `ids` only, when given.

    Wants are served in their order, until `limit` tasks (all together) are found.
    """

    worker: str
    wants: Sequence[PhaseClaim]
    ids: Sequence[str] | None = None
    limit: int | None = None


class Move(msgspec.Struct, frozen=True, gc=False):
    """What a rule made of a task: written only if the store still has the version it started from."""

    before: Task
    after: Task
    # And only if the lease has run out by the store's own clock when the write takes place, and the write did not wait
    # for a lock for more than a second: a holder's heartbeat may have waited for the same lock, and goes first.
    if_dead: bool = False

    @property
    def wakes(self) -> bool:
        """Whether it gives workers something to do: a task, a free slot, a cancel, an ended child."""
        before, after = self.before, self.after
        return (
            (after.status is WAITING and after.awaiting is None)
            or (before.slot is not None and after.slot is None)
            or (before.key_slot is not None and after.key_slot is None)
            or (after.cancel_requested and not before.cancel_requested)
            or (after.parent_id is not None and after.ended)
        )


class Lease(msgspec.Struct, frozen=True):
    """A worker's right to a task; the token tells it from everyone else's."""

    task_id: str
    token: int


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks: everything that is set must hold. Tombstones never match unless `hidden` is set."""

    statuses: frozenset[Status] = frozenset()
    pipeline: str | None = None
    phases: frozenset[str] = frozenset()
    user_id: str | None = None
    parent_id: str | None = None
    parked: bool | None = None
    awaiting: str | None = None
    leased_by: str | None = None
    cancel_requested: bool | None = None
    error_class: str | None = None
    error_text: str | None = None  # contained in the error, whatever its case
    title_text: str | None = None  # contained in the title, whatever its case
    text: str | None = None  # contained in title, error, id or payload
    payload: tuple[tuple[str, str], ...] = ()  # (dotted path, value as text)
    limit_key: str | None = None
    unique_key: str | None = None
    held_key: str | None = None
    due_before: datetime | None = None  # run_at at or before
    lease_ended_before: datetime | None = None
    held_until_before: datetime | None = None
    ended_before: datetime | None = None
    ended_after: datetime | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    ahead_of: tuple[int, datetime, str] | None = None  # before this (priority, run_at, id) in the order of claims
    hidden: bool = False


Order = Literal["newest", "oldest", "due", "ended", "latest"]
"""By created_at downwards; by created_at; by run_at; by completed_at; by completed_at downwards.

The id decides between equals.
"""


# ── what is answered ──────────────────────────────────────────────────────────────────────────────────────────────


class Inserted(msgspec.Struct, frozen=True):
    """The task is in the store."""

    task: Task


class Existing(msgspec.Struct, frozen=True):
    """Not inserted: this task has the same id, or holds the same unique key."""

    task: Task


class Swapped(msgspec.Struct, frozen=True, gc=False):
    """Written; the task as it stands now."""

    task: Task


class Stale(msgspec.Struct, frozen=True):
    """Not written: the stored version is another, or (if_dead) the lease lives, or the row is gone."""

    task_id: str


class Conflict(msgspec.Struct, frozen=True):
    """Not written: another task holds the unique key."""

    task_id: str
    other_id: str


class Held(msgspec.Struct, frozen=True):
    """The lease goes on; the row's version after the write."""

    task_id: str
    version: int
    leased_until: datetime
    cancel_requested: bool


class Lost(msgspec.Struct, frozen=True):
    """The lease is another's now, or nobody's."""

    task_id: str


class LeaseRecord(msgspec.Struct, frozen=True):
    """A lease as everyone can see it, without its task."""

    task_id: str
    pipeline: str
    phase: str
    token: int
    leased_by: str
    leased_until: datetime


class Page(msgspec.Struct, frozen=True):
    """Some tasks and where the next page begins (None: nowhere)."""

    tasks: list[Task]
    next: str | None = None


class TaskCount(msgspec.Struct, frozen=True):
    """How many tasks stand in one place."""

    pipeline: str
    phase: str
    status: Status
    parked: bool
    count: int
    oldest: datetime | None = None  # the earliest run_at of those waiting


class StoreCounts(msgspec.Struct, frozen=True):
    """How many tasks stand where in the whole store: open ones (of a few seconds ago, where there are very many), and
    ended ones as of a moment."""

    tallies: list[TaskCount]
    ended_at: datetime  # when the ended ones were counted; now, where they are exact


class Search(msgspec.Struct, frozen=True):
    """A page that may have stopped before the end, because its time was over."""

    tasks: list[Task]
    next: str | None = None  # where to look on (None: everything was looked at)
    looked_back_to: datetime | None = None  # how far it came, when its time was over
    looked_at: int = 0  # about how many rows that was


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: `bad` breaks a promise, `slow` costs speed, `good` is as it should be."""

    level: Literal["good", "slow", "bad"]
    what: str
    fix: str = ""


class Migration(msgspec.Struct, frozen=True):
    """How far a store was migrated, how far this code can, and the SQL (or the like) in between."""

    stored: int  # 0: there is nothing of ours yet
    known: int
    sql: str = ""
    min_code: int = 0  # the oldest schema number that code may know and still work on the store

    def finding(self) -> Finding | None:
        """What doctor says of a store whose schema is not the one that this code knows; None: it is."""
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


class Note(msgspec.Struct, frozen=True):
    """A small versioned record: definitions, limits, pauses, rates, cron marks, the worker roll, statistics."""

    kind: str
    name: str
    body: Any
    version: int = 0  # of the note as read; 0: there is none yet
    updated_at: datetime | None = None


class LogLine(msgspec.Struct, frozen=True):
    """One line of a task's output."""

    task_id: str
    at: datetime
    phase: str
    attempt: int
    level: str  # debug, info, warning, error, out, err
    text: str
    seq: int = 0  # given by the store, growing within a task


class LogPage(msgspec.Struct, frozen=True):
    """Some lines of one task, oldest first; `dropped` lines before them are gone."""

    lines: list[LogLine]
    next: int  # pass as `after` for what follows
    dropped: int = 0


SwapAnswer = Swapped | Stale | Conflict


# ── who answers ───────────────────────────────────────────────────────────────────────────────────────────────────


class Waker(Protocol):
    """A hint that there is work; may be lost without harm."""

    def wait(self, timeout: float) -> bool:
        """Rest until something may have changed in the store, or `timeout` seconds; whether it was woken."""

    def poke(self) -> None:
        """Wake the waiting thread of this process now."""

    def close(self) -> None: ...


class Store(Protocol):
    """Where rows live. Thread-safe. Driver exceptions never leave it: only core.errors do."""

    @property
    def url(self) -> str:
        """Where it is, absolute, any password masked."""

    def prepare(self) -> None:
        """Create or migrate what is needed; safe from many processes at once."""

    def check(self) -> None:
        """Raise CodeTooOld when newer code has made the store its own, SchemaMissing when it was never prepared."""

    def now(self) -> datetime:
        """The store's clock, to the millisecond."""

    def insert(self, tasks: Sequence[Task], *, tx: Any = None) -> list[Inserted | Existing]:
        """Put new rows in, all in one transaction (the caller's, with `tx`); an answer for each."""

    def claim(self, claim: Claim) -> list[Task]:
        """Make the first due tasks ours, atomically, each lease starting now by the store's clock."""

    def swap(self, moves: Sequence[Move]) -> list[SwapAnswer]:
        """Write what rules decided, row by row, only where nobody wrote meanwhile."""

    def settle_and_claim(self, moves: Sequence[Move], claim: Claim | None) -> tuple[list[SwapAnswer], list[Task]]:
        """Swap, then claim: in one transaction where the store can, so that a busy worker pays for one."""

    def extend(self, leases: Sequence[Lease], lease_for: timedelta) -> list[Held | Lost]:
        """Heartbeat: leases of processing rows with our token now end `lease_for` after the store's now."""

    def leases(self, *, pipeline: str | None = None, phase: str | None = None, limit: int) -> list[LeaseRecord]:
        """The leases of processing tasks, those that end first in front; reads no payloads."""

    def fetch(self, ids: Sequence[str]) -> list[Task]:
        """The tasks with these ids that exist, in no order."""

    def find(self, where: Filter, *, limit: int = 100, order: Order = "newest", after: str | None = None) -> Page:
        """Tasks that match, a page at a time by key; `after` is an earlier page's `next`."""

    def due(self, pipeline: str, phase: str, by: datetime, limit: int) -> list[Task]:
        """The first due, unparked tasks of a phase in the claim's order; looks, and takes nothing.

        What isn't due yet costs nothing, however much of it there is.
        """

    def ready(self, phases: AbstractSet[tuple[str, str]], by: datetime) -> list[tuple[str, str]]:
        """Which of these (pipeline, phase) have due, unparked tasks. May name too many, and never leaves one out.

        The cost follows the phases in which tasks wait, not those that are asked about.
        """

    def count(self, where: Filter) -> list[TaskCount]:
        """How many tasks match, by pipeline, phase, status and parked.

        With `parent_id` each child is counted exactly once, also one that changes its status during the count. Without
        it, a store that has no snapshots may count such a task twice or not at all.
        """

    def remove(self, tasks: Sequence[Task]) -> int:
        """Delete rows, and their log lines, that still have the version given; how many."""

    def append_log(self, lines: Sequence[LogLine]) -> None:
        """Keep output lines; beyond the bound of a task its oldest go."""

    def read_log(self, task_id: str, *, after: int = 0, limit: int = 1000, tail: int | None = None) -> LogPage:
        """Lines after a position, or the last `tail`."""

    def notes(self, kind: str, *, since: str = "", before: str = "") -> list[Note]:
        """All notes of a kind, by name; those named from `since` on and before `before`, where given."""

    def write_notes(self, notes: Sequence[Note]) -> list[bool]:
        """Write each note if its version is still the stored one (0: none yet); whether it was."""

    def drop_notes(self, kind: str, names: Sequence[str]) -> int:
        """Remove notes; how many."""

    def waker(self) -> Waker:
        """A waker of its own for one worker process."""

    def close(self) -> None:
        """Let go of connections; the store opens them again when used."""


@runtime_checkable
class Searchable(Protocol):
    """What a store may offer to faces: answers whose cost doesn't grow with the table.

    Without it the engine counts and finds as well as it can.
    """

    def store_counts(self) -> StoreCounts:
        """How many tasks stand where, in the whole store."""

    def search(
        self,
        where: Filter,
        *,
        limit: int = 100,
        order: Literal["newest", "latest"] = "newest",
        after: str | None = None,
        within: timedelta,
    ) -> Search:
        """As `find`, but stops when the time is over and says how far it looked."""


@runtime_checkable
class Maintainable(Protocol):
    """A store with housekeeping that needn't be done at once; workers see to it when there is time."""

    def maintain(self) -> bool:
        """Do a little of it; whether there is more."""


@runtime_checkable
class Identified(Protocol):
    """A store that can say without being opened whether it is the same as another."""

    def identity(self) -> object:
        """Equal for two stores that are one place under two names; None: nothing is there yet."""


@runtime_checkable
class Administrable(Protocol):
    """What a store may offer to those who look after it."""

    def inspect(self) -> list[Finding]:
        """Would the promises hold here? Looks and changes nothing."""

    def migration(self) -> Migration:
        """What `prepare` would do; looks and creates nothing."""

    def backup(self, path: Path, progress: Callable[[float], None]) -> None:
        """A whole, consistent copy while others write; `progress` hears of it from 0 to 1."""
