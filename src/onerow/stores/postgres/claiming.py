"""Claiming: phases without limits together in one statement, each limited phase in its own, all in one round trip."""

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
from onerow.stores.postgres.connections import Connection, Cursor
from onerow.stores.postgres.fast.binary import Bigs, Moments, Shorts, Texts, column
from onerow.stores.postgres.fast.low_water import MOST_SEEN, LowWaterMark, LowWaterMarks, Seen
from onerow.stores.postgres.fast.row_locations import RowLocations
from onerow.stores.postgres.rows import CLAIMED_COLUMNS, CLAIMED_FIELDS, claimed_task
from onerow.stores.postgres.statements import statement
from onerow.stores.postgres.transactions import looking

_MILLI = timedelta(milliseconds=1)
_in_order = itemgetter(*(CLAIMED_FIELDS.index(field) for field in ("priority", "run_at", "task_id")))


Key = tuple[str, int]
"""A limit_key and a priority at which some of its tasks wait."""
_FEW_KEYS = 50  # which any claim can look at
_MOST_KEYS = 200  # which one claim looks at when its turn has come


class _Sent(msgspec.Struct):
    """A statement on its way."""

    wants: Sequence[PhaseClaim]
    marks: Sequence[LowWaterMark | None]
    limit: int
    cursor: Cursor
    seen: Seen | None = None  # of a limited phase: what it relied on
    tracked: bool = False  # its rows say also what the next claim of a limited phase may rely on


class Claiming:
    """One claim on its way: sent in a pipeline, received when that is over."""

    def __init__(
        self,
        schema: str,
        claim: Claim,
        hints: LowWaterMarks,
        now: datetime | None,
        *,
        singly: bool = False,
        keys: Sequence[Key] = (),
    ) -> None:
        """`singly`: of limited phases one task each, so that a collision can't recur. `keys`: look at these."""
        self._schema = schema
        self._claim = claim
        self._hints = hints
        self._puts = hints.puts
        self._now = now
        self._singly = singly
        self._keys = keys
        self._sent: list[_Sent] = []
        self._missed: list[PhaseClaim] = []
        self.unreadable: list[str] = []  # ids of rows that became ours, and of which no task can be made
        self.missed: Claim | None = None  # what to look for again, since a mark may have hidden it from us
        self.crowded: list[PhaseClaim] = []  # what to look for key by key, since full ones may have hidden it

    def send(self, connection: Connection) -> None:
        """See ports.Store.claim; inside an open transaction."""
        claim = self._claim
        wants = [want for want in claim.wants if want.limit > 0]
        if not wants or self.left <= 0 or (claim.ids is not None and not claim.ids):
            return
        limited = [want for want in wants if _is_limited(want)]
        if limited:
            keys = sorted({_lock_key(self._schema, want.pipeline, want.phase) for want in limited})
            connection.execute(statement("lock_phases", self._schema), {"keys": column(Bigs, keys)})
        groups = list(_groups(wants, apart=claim.ids is not None))
        for group in groups:
            last = group is groups[-1]
            if claim.ids is None and not _is_limited(group[0]):
                self._send_free(connection, group, last=last)
            else:
                self._send_limited(connection, group[0], last=last)

    @property
    def left(self) -> int:
        """How many tasks all wants together may take; the transaction keeps count of it."""
        asked = sum(max(0, want.limit) for want in self._claim.wants)
        return asked if self._claim.limit is None else min(asked, self._claim.limit)

    def receive(self, places: RowLocations) -> list[Task]:
        """What became ours, want by want, each in order."""
        tasks: list[Task] = []
        for sent in self._sent:
            rows = sorted(sent.cursor.fetchall(), key=_in_order)
            tracked = [row[-2:] for row in rows] if sent.tracked else []
            rows = [row[:-2] for row in rows] if sent.tracked else rows
            found, unreadable = set_apart(rows, lambda row: claimed_task(row, self._claim.worker), itemgetter(0))
            if unreadable:
                self.unreadable += unreadable
                kept = [nth for nth, row in enumerate(rows) if row[0] not in unreadable]
                tracked = [tracked[nth] for nth in kept] if tracked else []
                rows = [rows[nth] for nth in kept]
            places.note(found, [row[-1] for row in rows])
            if sent.tracked:
                self._look_ahead(sent, found, tracked)
            if len(sent.wants) == 1:
                self._look_back(sent, sent.wants[0], found, len(found))
                tasks += found
                continue
            by_phase: dict[tuple[str, str], list[Task]] = {}
            for task in found:
                by_phase.setdefault((task.pipeline, task.phase), []).append(task)
            for want in sent.wants:
                mine = by_phase.get((want.pipeline, want.phase), [])
                self._look_back(sent, want, mine, len(found))
                tasks += mine
        left = None if self._claim.limit is None else self._claim.limit - len(tasks)
        if self._missed and (left is None or left > 0):
            self.missed = Claim(self._claim.worker, self._missed, limit=left)
        return tasks

    def _look_back(self, sent: _Sent, want: PhaseClaim, found: Sequence[Task], together: int) -> None:
        """Remember where a claim ended, or that it may have missed something: before its mark, or behind full keys."""
        if want.key_slots is not None and self._claim.ids is None and not self._keys and len(found) < sent.limit:
            self.crowded.append(msgspec.structs.replace(want, limit=sent.limit - len(found)))
        if not sent.marks or _is_limited(want):
            return
        mark = sent.marks[sent.wants.index(want)]
        more = bool(found) and (len(found) >= want.limit or together >= min(sent.limit, self.left))
        self._hints.ended(want, mark, found[-1] if more else None, self._puts)
        if mark is not None and len(found) < want.limit:
            self._missed.append(msgspec.structs.replace(want, limit=want.limit - len(found)))

    def _look_ahead(self, sent: _Sent, found: Sequence[Task], tracked: Sequence[tuple[bool, list[str] | None]]) -> None:
        """Remember what a claim of a limited phase saw. It looked before its mark itself if too few were behind."""
        if not found:  # the phase is full, or nothing is due: what we knew still holds
            return
        (want,), (mark,) = sent.wants, sent.marks
        passed = [task for task, (is_passed, _) in zip(found, tracked, strict=True) if is_passed]
        if mark is not None and not mark.is_before(found[0]):
            self._hints.ended(want, mark, None, self._puts)  # there may be more before it
        elif passed and not self._keys:
            self._hints.ended(want, mark, passed[-1], self._puts)
        started_at = found[0].started_at
        assert started_at is not None
        self._hints.saw(want, sent.seen, started_at, next((ids for _, ids in tracked if ids is not None), None))

    def _send_free(self, connection: Connection, wants: Sequence[PhaseClaim], *, last: bool) -> None:
        marks = [self._hints.of(want) for want in wants]
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
        cursor = connection.execute(_claim("claim", self._schema, last), given, binary=True)
        self._sent.append(_Sent(wants, marks, limit, cursor))

    def _send_limited(self, connection: Connection, want: PhaseClaim, *, last: bool) -> None:
        limit = 1 if self._singly else want.limit
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
        name = "claim_by_key" if want.key_slots is not None else "claim_slots"
        if self._claim.ids is not None:
            name = "claim_ids"
            given["ids"] = column(Texts, self._claim.ids)
            cursor = connection.execute(_claim(name, self._schema, last), given, binary=True)
            self._sent.append(_Sent((want,), (), limit, cursor))
            return
        # A claim that looks at given keys sees too little of the front to rely on a mark, or to leave one.
        mark = None if self._keys else self._hints.of(want)
        seen = self._hints.seen(want)
        given |= {
            "priority": mark and mark.priority,
            "run_at": mark and mark.run_at,
            "task_id": mark and mark.task_id,
            "since": seen and seen.since,
            "seen": column(Texts, seen.task_ids if seen else ()),
            "most_seen": Int8(MOST_SEEN),
        }
        if want.key_slots is not None:
            given["keys"] = column(Texts, [key for key, _ in self._keys])
            given["priorities"] = column(Shorts, [priority for _, priority in self._keys])
            given["few"] = Int8(_FEW_KEYS)
        cursor = connection.execute(_claim(name, self._schema, last), given, binary=True)
        self._sent.append(_Sent((want,), (mark,), limit, cursor, seen, tracked=True))


def keys_waiting(connection: Connection, schema: str, want: PhaseClaim, hints: LowWaterMarks) -> list[Key]:
    """The next keys of which tasks wait in a phase, if they are too many for every claim to look at: they take turns."""
    after = hints.last_key(want)
    given = {
        "pipeline": want.pipeline,
        "phase": want.phase,
        "slots": None if want.slots is None else Int8(want.slots),
        "most": Int8(_MOST_KEYS),
    }
    sql = statement("keys_waiting", schema)
    with looking(connection):
        asked = [
            connection.execute(sql, given | {"after": key}, binary=True) for key in sorted({after, ""}, reverse=True)
        ]
    found = [key for cursor in asked for key in cursor.fetchall()]
    keys = list(dict.fromkeys(found))[:_MOST_KEYS]
    if len(keys) < _MOST_KEYS:
        hints.looked_at(want, "")
    else:  # the last one may have more priorities than we saw, so the next look begins with it
        last = keys[-1][0]
        hints.looked_at(want, next((key for key, _ in reversed(keys) if key != last), last))
    return keys if len(keys) >= _FEW_KEYS else []


def is_free(claim: Claim) -> bool:
    """Whether what may be claimed depends on nothing but the tasks that wait."""
    return claim.ids is None and bool(claim.wants) and not any(map(_is_limited, claim.wants))


def _is_limited(want: PhaseClaim) -> bool:
    return want.slots is not None or want.key_slots is not None


def _groups(wants: Sequence[PhaseClaim], *, apart: bool) -> Iterator[Sequence[PhaseClaim]]:
    """Neighbours without limits go together, each phase once; the order of wants stays."""
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
def _claim(name: str, schema: str, last: bool) -> Any:
    claim = statement(name, schema).replace("{columns}", CLAIMED_COLUMNS)
    return claim if last else statement("claim_counted", schema).replace("{claim}", claim)
