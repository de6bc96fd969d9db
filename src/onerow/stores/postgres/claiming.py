"""Claims: one statement for all phases without limits, one for each limited phase, all in one round trip."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from typing import Any

import msgspec
from psycopg.types.numeric import Int8

from onerow.core.corruption import set_apart
from onerow.core.task import Task
from onerow.ports import Claim, PhaseClaim
from onerow.stores.postgres.fast.binary import Bigs, Moments, Shorts, Texts, column
from onerow.stores.postgres.fast.low_water import MAX_SEEN, LowWaterMark, LowWaterMarks, Seen
from onerow.stores.postgres.pipelining import Connection, Cursor, Transaction, read_transaction
from onerow.stores.postgres.rows import CLAIMED_COLUMNS, CLAIMED_FIELDS, claimed_task
from onerow.stores.postgres.statements import statement
from onerow.stores.postgres.swapping import RowLocations

_MILLI = timedelta(milliseconds=1)
_claim_order = itemgetter(*(CLAIMED_FIELDS.index(field) for field in ("priority", "run_at", "task_id")))


Key = tuple[str, int]
"""A limit_key and a priority that waiting tasks have."""
_EXACT_KEYS = 50  # up to this number, a claim scans all keys, and the order of tasks is exact
_KEYS_PER_CLAIM = 200  # above _EXACT_KEYS, a claim scans the next ones, round-robin


class _Statement(msgspec.Struct):
    """One statement of a claim: its file in sql/, its parameters, and what they were made from."""

    name: str
    given: dict[str, Any]
    wants: Sequence[PhaseClaim]
    marks: Sequence[LowWaterMark | None]
    limit: int
    seen: Seen | None = None  # limited phases only: the processing tasks that it relied on
    tracked: bool = False  # its rows have two extra columns, for the next claim of a limited phase


class Claiming:
    """One claim: `send` inside a pipeline, `receive` after the pipeline has ended."""

    def __init__(
        self,
        schema: str,
        claim: Claim,
        low_water: LowWaterMarks,
        now: datetime | None,
        *,
        one_each: bool = False,
        keys: Sequence[Key] = (),
    ) -> None:
        """`one_each`: claim one task per limited phase, to avoid another collision. `keys`: scan only these."""
        self._schema = schema
        self._claim = claim
        self._low_water = low_water
        self._invalidations = low_water.invalidations
        self._now = now
        self._one_each = one_each
        self._keys = keys
        self._sent: list[tuple[_Statement, Cursor]] = []
        self._missed: list[PhaseClaim] = []
        self.unreadable: list[str] = []  # ids of claimed rows that cannot be decoded
        self.missed: Claim | None = None  # to claim again: a low-water mark may have hidden tasks
        self.unsent: list[PhaseClaim] = []  # to claim next: they did not fit into the transaction
        self.crowded: list[PhaseClaim] = []  # to claim key by key: full keys may have hidden tasks

    def send(self, transaction: Transaction) -> None:
        """See ports.Store.claim; wants that the transaction has no room for are left in `unsent`."""
        claim = self._claim
        wants = [want for want in claim.phases if want.limit > 0]
        if not wants or self.left <= 0 or (claim.ids is not None and not claim.ids):
            return
        limited = [want for want in wants if _is_limited(want)]
        if limited:
            keys = sorted({_lock_key(self._schema, want.pipeline, want.phase) for want in limited})
            transaction.lock(statement("lock_phases", self._schema), {"keys": column(Bigs, keys)})
        groups = list(_groups(wants, apart=claim.ids is not None))
        for number, group in enumerate(groups):
            is_plain = claim.ids is None and not _is_limited(group[0])
            built = self._unlimited(group) if is_plain else self._limited(group[0])
            sql = _claim_sql(built.name, self._schema, last=group is groups[-1])
            cursor = transaction.claim(sql, built.given, is_first=not self._sent)
            if cursor is None:
                self.unsent = [want for later in groups[number:] for want in later]
                break
            self._sent.append((built, cursor))

    @property
    def left(self) -> int:
        """How many tasks all wants may take in total; the setting onerow.left counts it down in the transaction."""
        asked = sum(max(0, want.limit) for want in self._claim.phases)
        return asked if self._claim.limit is None else min(asked, self._claim.limit)

    def receive(self, locations: RowLocations) -> list[Task]:
        """Return the claimed tasks, in the order of wants, each in claim order."""
        tasks: list[Task] = []
        for sent, cursor in self._sent:
            rows = sorted(cursor.fetchall(), key=_claim_order)
            tracked = [row[-2:] for row in rows] if sent.tracked else []
            rows = [row[:-2] for row in rows] if sent.tracked else rows
            found, unreadable = set_apart(rows, lambda row: claimed_task(row, self._claim.worker), itemgetter(0))
            if unreadable:
                self.unreadable += unreadable
                kept = [nth for nth, row in enumerate(rows) if row[0] not in unreadable]
                tracked = [tracked[nth] for nth in kept] if tracked else []
                rows = [rows[nth] for nth in kept]
            locations.remember(found, [row[-1] for row in rows])
            if sent.tracked:
                self._record_seen(sent, found, tracked)
            if len(sent.wants) == 1:
                self._record_end(sent, sent.wants[0], found, len(found))
                tasks += found
                continue
            by_phase: dict[tuple[str, str], list[Task]] = {}
            for task in found:
                by_phase.setdefault((task.pipeline, task.phase), []).append(task)
            for want in sent.wants:
                mine = by_phase.get((want.pipeline, want.phase), [])
                self._record_end(sent, want, mine, len(found))
                tasks += mine
        left = None if self._claim.limit is None else self._claim.limit - len(tasks)
        if self._missed and (left is None or left > 0):
            self.missed = Claim(self._claim.worker, self._missed, limit=left)
        return tasks

    def _record_end(self, sent: _Statement, want: PhaseClaim, found: Sequence[Task], together: int) -> None:
        """Record where a claim ended, or that it may have missed tasks before its low-water mark or behind full keys."""
        if want.key_slots is not None and self._claim.ids is None and not self._keys and len(found) < sent.limit:
            self.crowded.append(msgspec.structs.replace(want, limit=sent.limit - len(found)))
        if not sent.marks or _is_limited(want):
            return
        mark = sent.marks[sent.wants.index(want)]
        more = bool(found) and (len(found) >= want.limit or together >= min(sent.limit, self.left))
        self._low_water.record_end(want, mark, found[-1] if more else None, self._invalidations)
        if mark is not None and len(found) < want.limit:
            self._missed.append(msgspec.structs.replace(want, limit=want.limit - len(found)))

    def _record_seen(
        self, sent: _Statement, found: Sequence[Task], tracked: Sequence[tuple[bool, list[str] | None]]
    ) -> None:
        """Record what a claim of a limited phase saw; its SQL already looks before the low-water mark if needed."""
        if not found:  # the phase is full, or nothing is due: the records are still valid
            return
        (want,), (mark,) = sent.wants, sent.marks
        passed = [task for task, (is_passed, _) in zip(found, tracked, strict=True) if is_passed]
        if mark is not None and not mark.is_before(found[0]):
            self._low_water.record_end(want, mark, None, self._invalidations)  # there may be more before it
        elif passed and not self._keys:
            self._low_water.record_end(want, mark, passed[-1], self._invalidations)
        started_at = found[0].started_at
        assert started_at is not None
        self._low_water.record_seen(
            want, sent.seen, started_at, next((ids for _, ids in tracked if ids is not None), None)
        )

    def _unlimited(self, wants: Sequence[PhaseClaim]) -> _Statement:
        marks = [self._low_water.start_of(want) for want in wants]
        leases = [want.lease_for // _MILLI for want in wants]
        limit = sum(want.limit for want in wants)
        given = {
            "now": self._now,
            "worker": self._claim.worker,
            "lease": Int8(leases[0]) if len(set(leases)) == 1 else None,
            "leases": column(Bigs, leases),
            "pipelines": column(Texts, [want.pipeline for want in wants]),
            "phases": column(Texts, [want.phase for want in wants]),
            "limits": column(Bigs, [want.limit for want in wants]),
            "priorities": column(Shorts, [mark and mark.priority for mark in marks]),
            "run_ats": column(Moments, [mark and mark.run_at for mark in marks]),
            "ids": column(Texts, [mark and mark.task_id for mark in marks]),
            "limit": Int8(limit),
        }
        return _Statement("claim", given, wants, marks, limit)

    def _limited(self, want: PhaseClaim) -> _Statement:
        limit = 1 if self._one_each else want.limit
        given: dict[str, Any] = {
            "now": self._now,
            "worker": self._claim.worker,
            "lease": Int8(want.lease_for // _MILLI),
            "pipeline": want.pipeline,
            "phase": want.phase,
            "limit": Int8(limit),
            "slots": None if want.slots is None else Int8(want.slots),
            "key_slots": None if want.key_slots is None else Int8(want.key_slots),
        }
        if self._claim.ids is not None:
            given |= {"ids": column(Texts, self._claim.ids), "since": None, "seen": column(Texts, ())}
            return _Statement("claim_ids", given, (want,), (), limit)
        # A claim for given keys does not scan in order, so it can neither use nor set a low-water mark.
        mark = None if self._keys else self._low_water.start_of(want)
        seen = self._low_water.seen(want)
        given |= {
            "priority": mark and mark.priority,
            "run_at": mark and mark.run_at,
            "task_id": mark and mark.task_id,
            "since": seen and seen.since,
            "seen": column(Texts, seen.task_ids if seen else ()),
            "most_seen": Int8(MAX_SEEN),
        }
        if want.key_slots is not None:
            given["keys"] = column(Texts, [key for key, _ in self._keys])
            given["priorities"] = column(Shorts, [priority for _, priority in self._keys])
            given["few"] = Int8(_EXACT_KEYS)
        name = "claim_slots" if want.key_slots is None else "claim_by_key"
        return _Statement(name, given, (want,), (mark,), limit, seen, tracked=True)


def keys_waiting(connection: Connection, schema: str, want: PhaseClaim, low_water: LowWaterMarks) -> list[Key]:
    """Return the next waiting keys of a phase, round-robin; empty if there are few enough for every claim to scan."""
    after = low_water.last_key(want)
    given = {
        "pipeline": want.pipeline,
        "phase": want.phase,
        "slots": None if want.slots is None else Int8(want.slots),
        "most": Int8(_KEYS_PER_CLAIM),
    }
    sql = statement("keys_waiting", schema)
    with read_transaction(connection):
        asked = [
            connection.execute(sql, given | {"after": key}, binary=True) for key in sorted({after, ""}, reverse=True)
        ]
    found = [key for cursor in asked for key in cursor.fetchall()]
    keys = list(dict.fromkeys(found))[:_KEYS_PER_CLAIM]
    if len(keys) < _KEYS_PER_CLAIM:
        low_water.set_last_key(want, "")
    else:  # the last key may have more priorities, so the next scan starts with it
        last = keys[-1][0]
        low_water.set_last_key(want, next((key for key, _ in reversed(keys) if key != last), last))
    return keys if len(keys) >= _EXACT_KEYS else []


def is_unlimited(claim: Claim) -> bool:
    """Whether no phase of the claim is limited, so that it depends on waiting tasks only."""
    return claim.ids is None and bool(claim.phases) and not any(map(_is_limited, claim.phases))


def _is_limited(want: PhaseClaim) -> bool:
    return want.slots is not None or want.key_slots is not None


def _groups(wants: Sequence[PhaseClaim], *, apart: bool) -> Iterator[Sequence[PhaseClaim]]:
    """Group adjacent wants without limits, each phase once per group; keep their order."""
    group: list[PhaseClaim] = []
    for want in wants:
        alone = apart or _is_limited(want)
        if group and (alone or any((w.pipeline, w.phase) == (want.pipeline, want.phase) for w in group)):
            yield group
            group = []
        if alone:
            yield [want]
        else:
            group.append(want)
    if group:
        yield group


@lru_cache(maxsize=1024)
def _lock_key(schema: str, pipeline: str, phase: str) -> int:
    digest = blake2b(f"{schema}\n{pipeline}\n{phase}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


@lru_cache(maxsize=64)
def _claim_sql(name: str, schema: str, *, last: bool) -> Any:
    claim = statement(name, schema).replace("{columns}", CLAIMED_COLUMNS)
    return claim if last else statement("claim_counted", schema).replace("{claim}", claim)
