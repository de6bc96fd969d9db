"""The reference store: dictionaries under one lock. Every other store must behave like it.

Its rows are lost when the process ends, so it is for tests only.
"""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from operator import gt, itemgetter, lt
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from onerow.core import rules, times
from onerow.core.errors import BadInput
from onerow.core.filters import SORTING, Filter, Order, Position, matches, position_of
from onerow.core.output_bound import OutputBound, byte_size
from onerow.core.slots import PhaseSlots
from onerow.core.status import PROCESSING, WAITING
from onerow.core.task import Task, changed_fields
from onerow.core.wakeups import wakes
from onerow.ports import (
    Claim,
    Conflict,
    Existing,
    Finding,
    Held,
    Inserted,
    Lease,
    LeaseRecord,
    LogLine,
    LogPage,
    Lost,
    Migration,
    Move,
    Note,
    Page,
    PhaseClaim,
    Stale,
    SwapAnswer,
    Swapped,
    TaskCount,
    count_tasks,
)
from onerow.stores.shared.paging import find_page
from onerow.stores.shared.waking import any_wakes

Key = tuple[str, str, str]


def _utc_now() -> datetime:
    return datetime.now(UTC)


class MemoryStore:
    """Rows in a dictionary; `clock` is the store's clock, which a test can control."""

    def __init__(
        self, clock: Callable[[], datetime] = _utc_now, *, log_lines: int = 10_000, log_size: int = 1_000_000
    ) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._changes = 0
        self._rows: dict[str, Task] = {}
        self._holders: dict[Key, str] = {}  # unique index: held key → task id
        self._logs: dict[str, _Log] = {}
        self._output_bound = OutputBound(log_lines, log_size)
        self._notes: dict[tuple[str, str], tuple[int, bytes, datetime]] = {}

    @property
    def url(self) -> str:
        return f"memory://{id(self):x}"

    def prepare(self) -> None:
        """Nothing to create."""

    def close(self) -> None:
        """Nothing to release."""

    def check(self) -> None:
        """Nothing to check: there is no schema."""

    def now(self) -> datetime:
        return times.to_millis(self._clock())

    # ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def insert(self, tasks: Sequence[Task], *, tx: Any = None) -> list[Inserted | Existing]:
        if tx is not None:
            raise BadInput("the memory store has no transactions to join", fix="leave tx out", field="tx")
        with self._lock:
            answers = [self._insert(task) for task in tasks]
            if any(wakes(None, task) for task in tasks):
                self._wake()
            return answers

    def _insert(self, task: Task) -> Inserted | Existing:
        known = self._rows.get(task.task_id) or self._holder(task)
        if known is not None:
            return Existing(known)
        self._put(task)
        return Inserted(task)

    def claim(self, claim: Claim) -> list[Task]:
        with self._lock:
            taken: list[Task] = []
            for want in claim.phases:
                capacity = want.limit if claim.limit is None else min(want.limit, claim.limit - len(taken))
                taken += self._claim(want, claim, capacity)
            return taken

    def _claim(self, want: PhaseClaim, claim: Claim, capacity: int) -> list[Task]:
        now = self.now()
        until = times.to_millis(now + want.lease_for)
        admitted = self._admitted(want, now, claim.ids, capacity)
        taken = [rules.claimed(row, claim.worker, until, now, *free) for row, free in admitted]
        for task in taken:
            self._put(task)
        return taken

    def _admitted(
        self, want: PhaseClaim, by: datetime, ids: Sequence[str] | None, capacity: int
    ) -> list[tuple[Task, tuple[int | None, int | None]]]:
        """Return the first due rows that the limits admit, and their slots."""
        here = [row for row in self._rows.values() if (row.pipeline, row.phase) == (want.pipeline, want.phase)]
        running = [row for row in here if row.status is PROCESSING]
        slots = PhaseSlots(want.slots, want.key_slots, [(row.limit_key, row.slot, row.key_slot) for row in running])
        admitted: list[tuple[Task, tuple[int | None, int | None]]] = []
        for row in sorted(here, key=lambda row: (row.priority, row.run_at, row.task_id)):
            if len(admitted) >= capacity:
                break
            due = row.status is WAITING and row.awaiting is None and row.run_at <= by
            if due and (ids is None or row.task_id in ids) and (free := slots.take(row.limit_key)):
                admitted.append((row, free))
        return admitted

    def claimable(self, want: PhaseClaim, by: datetime) -> int:
        with self._lock:
            return len(self._admitted(want, by, None, want.limit))

    def swap(self, moves: Sequence[Move]) -> list[SwapAnswer]:
        with self._lock:
            answers = [self._swap(move) for move in moves]
            if any_wakes(moves):
                self._wake()
            return answers

    def _swap(self, move: Move) -> SwapAnswer:
        task_id = move.before.task_id
        row = self._rows.get(task_id)
        if row is None or row.version != move.before.version:
            return Stale(task_id)
        if move.if_dead and (row.leased_until is None or row.leased_until > self.now()):
            return Stale(task_id)
        changes = {field: getattr(move.after, field) for field in changed_fields(move.before, move.after)}
        after = replace(row, **changes)
        if (other := self._holder(after)) is not None and other.task_id != task_id:
            return Conflict(task_id, other.task_id)
        if move.remove:
            self._remove_row(task_id)
            self._logs.pop(task_id, None)
        else:
            self._put(after)
        return Swapped(after)

    def settle_and_claim(self, moves: Sequence[Move], claim: Claim | None) -> tuple[list[SwapAnswer], list[Task]]:
        with self._lock:
            return self.swap(moves), [] if claim is None else self.claim(claim)

    def extend(self, leases: Sequence[Lease], lease_for: timedelta) -> list[Held | Lost]:
        with self._lock:
            return [self._extend(lease, lease_for) for lease in leases]

    def _extend(self, lease: Lease, lease_for: timedelta) -> Held | Lost:
        row = self._rows.get(lease.task_id)
        if row is None or row.status is not PROCESSING or row.token != lease.token:
            return Lost(lease.task_id)
        now = self.now()
        self._put(row.with_changes(now, leased_until=(until := times.to_millis(now + lease_for))))
        return Held(row.task_id, row.version + 1, until, row.cancel_requested)

    def leases(self, *, pipeline: str | None = None, phase: str | None = None, limit: int) -> list[LeaseRecord]:
        with self._lock:
            found = [
                LeaseRecord(row.task_id, row.pipeline, row.phase, row.token, row.leased_by or "", row.leased_until)
                for row in self._rows.values()
                if row.status is PROCESSING
                and row.leased_until is not None
                and pipeline in (None, row.pipeline)
                and phase in (None, row.phase)
            ]
        return sorted(found, key=lambda record: (record.leased_until, record.task_id))[:limit]

    def fetch(self, ids: Sequence[str]) -> list[Task]:
        with self._lock:
            return [self._rows[task_id] for task_id in dict.fromkeys(ids) if task_id in self._rows]

    def find(self, where: Filter, *, limit: int = 100, order: Order = "newest", after: str | None = None) -> Page:
        def read(most: int, after: Position | None, _until: Position | None) -> list[Task]:
            column, descending = SORTING[order]
            with self._lock:
                rows = [row for row in self._matching(where) if getattr(row, column) is not None]
            found = sorted(((position_of(row, order), row) for row in rows), key=itemgetter(0), reverse=descending)
            is_further = lt if descending else gt
            return [row for position, row in found if after is None or is_further(position, after)][:most]

        return find_page(read, limit, order, after)

    def due(self, pipeline: str, phase: str, by: datetime, limit: int) -> list[Task]:
        where = Filter(
            statuses=frozenset({WAITING}), parked=False, pipeline=pipeline, phases=frozenset({phase}), due_before=by
        )
        with self._lock:
            return sorted(self._matching(where), key=lambda row: (row.priority, row.run_at, row.task_id))[:limit]

    def ready(self, phases: AbstractSet[tuple[str, str]], by: datetime) -> list[tuple[str, str]]:
        with self._lock:
            due = self._matching(Filter(statuses=frozenset({WAITING}), parked=False, due_before=by))
            return sorted({(row.pipeline, row.phase) for row in due}.intersection(phases))

    def count(self, where: Filter) -> list[TaskCount]:
        with self._lock:
            return count_tasks(self._matching(where))

    def remove(self, tasks: Sequence[Task]) -> int:
        with self._lock:
            gone = [row for task in tasks if (row := self._rows.get(task.task_id)) and row.version == task.version]
            for row in gone:
                self._remove_row(row.task_id)
                self._logs.pop(row.task_id, None)
            return len(gone)

    def remove_log(self, task_ids: Sequence[str]) -> None:
        with self._lock:
            for task_id in task_ids:
                self._logs.pop(task_id, None)

    # ── logs and notes ────────────────────────────────────────────────────────────────────────────────────────────

    def append_log(self, lines: Sequence[LogLine]) -> None:
        with self._lock:
            for line in lines:
                self._logs.setdefault(line.task_id, _Log(self._output_bound)).append(line)

    def read_log(self, task_id: str, *, after: int = 0, limit: int = 1000, tail: int | None = None) -> LogPage:
        with self._lock:
            log = self._logs.get(task_id)
            lines = [] if log is None else [line for line in log.lines if line.seq > after]
            dropped = 0 if log is None else log.dropped
        page = lines[:limit] if tail is None else lines[max(0, len(lines) - tail) :]
        return LogPage(page, page[-1].seq if page else after, dropped)

    def notes(self, kind: str, *, since: str = "", before: str = "") -> list[Note]:
        with self._lock:
            found = sorted(
                (name, *note)
                for (its_kind, name), note in self._notes.items()
                if its_kind == kind and name >= since and (not before or name < before)
            )
        return [Note(kind, name, msgspec.json.decode(body), version, at) for name, version, body, at in found]

    def write_notes(self, notes: Sequence[Note]) -> list[bool]:
        with self._lock:
            return [self._write_note(note) for note in notes]

    def _write_note(self, note: Note) -> bool:
        key = (note.kind, note.name)
        if note.version != (self._notes[key][0] if key in self._notes else 0):
            return False
        self._notes[key] = (note.version + 1, msgspec.json.encode(note.body), self.now())
        return True

    def drop_notes(self, kind: str, names: Sequence[str]) -> int:
        with self._lock:
            return sum(self._notes.pop((kind, name), None) is not None for name in set(names))

    # ── maintenance ───────────────────────────────────────────────────────────────────────────────────────────────

    def inspect(self, *, quick: bool = False) -> list[Finding]:
        return [Finding("slow", "this store lives and dies with its process", "name another for more than tests")]

    def migration(self) -> Migration:
        return Migration(1, 1)

    def backup(self, path: Path, progress: Callable[[float], None]) -> None:
        raise BadInput("the memory store can't be backed up: it lives and dies with its process", field="store")

    # ── waking ────────────────────────────────────────────────────────────────────────────────────────────────────

    def waker(self) -> "MemoryWaker":
        return MemoryWaker(self._changed, lambda: self._changes)

    def _wake(self) -> None:
        self._changes += 1
        self._changed.notify_all()

    # ── rows and the unique index ─────────────────────────────────────────────────────────────────────────────────

    def _put(self, task: Task) -> None:
        self._remove_row(task.task_id)
        self._rows[task.task_id] = task
        if task.held_key is not None:
            self._holders[task.pipeline, task.user_id, task.held_key] = task.task_id

    def _remove_row(self, task_id: str) -> None:
        old = self._rows.pop(task_id, None)
        if old is not None and old.held_key is not None:
            del self._holders[old.pipeline, old.user_id, old.held_key]

    def _holder(self, task: Task) -> Task | None:
        """Return the row that holds this task's unique key."""
        if task.held_key is None:
            return None
        held_by = self._holders.get((task.pipeline, task.user_id, task.held_key))
        return None if held_by is None else self._rows[held_by]

    def _matching(self, where: Filter) -> Iterator[Task]:
        return (row for row in self._rows.values() if matches(row, where))


class MemoryWaker:
    """Wakes on writes to its store and on `poke`."""

    def __init__(self, changed: threading.Condition, changes: Callable[[], int]) -> None:
        self._changed = changed
        self._changes = changes
        self._seen = changes()

    def wait(self, timeout: float) -> bool:
        with self._changed:
            woken = self._changed.wait_for(lambda: self._changes() != self._seen, timeout)
            self._seen = self._changes()
            return woken

    def poke(self) -> None:
        with self._changed:
            self._seen -= 1  # makes the current or next wait return at once
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing to release."""


class _Log:
    """The output of one task."""

    def __init__(self, bound: OutputBound) -> None:
        self.lines: deque[LogLine] = deque()
        self.dropped = 0
        self._bound = bound
        self._size = 0  # in bytes
        self._seq = itertools.count(1)

    def append(self, line: LogLine) -> None:
        self.lines.append(replace(line, seq=next(self._seq)))
        self._size += byte_size(line.text)
        count, freed = self._bound.drop(len(self.lines), self._size, (byte_size(each.text) for each in self.lines))
        for _ in range(count):
            self.lines.popleft()
        self._size -= freed
        self.dropped += count
