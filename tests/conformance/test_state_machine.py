"""Compare each store with the memory store: the same operations in any order give the same answers and rows."""

import itertools
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from onerow.core import rules
from onerow.core.errors import OnerowError
from onerow.core.filters import Filter, Order
from onerow.core.status import PROCESSING, Status
from onerow.core.task import Task
from onerow.ports import (
    Claim,
    Conflict,
    Existing,
    Held,
    Inserted,
    Lease,
    LogLine,
    Lost,
    Move,
    Note,
    PhaseClaim,
    Stale,
    Store,
    Swapped,
)
from onerow.stores.memory import MemoryStore
from tests.conformance.kit import every_row, new, same
from tests.conformance.stores import OpenedStore
from tests.samples import BROKEN, HOPELESS, PLAN

Operation = Callable[[Task, datetime], Task]

OPERATIONS: dict[str, Operation] = {
    "complete": lambda task, now: rules.complete(task, PLAN, '{"made":"조수"}', now, by="w1"),
    "advance with nothing": lambda task, now: rules.complete(task, PLAN, None, now),
    "finish": lambda task, now: rules.finish(task, "[1]", now),
    "fail": lambda task, now: rules.fail(task, BROKEN, PLAN, now),
    "fail for good": lambda task, now: rules.fail(task, HOPELESS, PLAN, now),
    "crash": lambda task, now: rules.crash(task, BROKEN, now),
    "interrupt": lambda task, now: rules.interrupt(task, "host killed", now),
    "rescue": lambda task, now: rules.rescue(task, now),
    "snooze": lambda task, now: rules.snooze(task, timedelta(seconds=3), now),
    "hand back": lambda task, now: rules.hand_back(task, now),
    "stop": lambda task, now: rules.stop_cancelled(task, now),
    "park": lambda task, now: rules.park(task, "signal:go", now + timedelta(seconds=20), now),
    "report": lambda task, now: rules.report(
        task, now, progress='{"done":1}', steps=f'{{"{task.phase}":{{"a":{{"at":"2026-11-15T02:29:57.123Z"}}}}}}'
    ),
    "pass": lambda task, now: rules.pass_(task, PLAN, now),
    "expire": lambda task, now: rules.expire(task, PLAN, now),
    "release key": rules.release_key,
    "bury": rules.bury,
    "signal": lambda task, now: rules.signal(task, "go", '"now"', f"s{task.version}", now),
    "signal images": lambda task, now: rules.signal(task, "images.ready", "1", "i", now),
    "cancel": lambda task, now: rules.cancel(task, now, by="ann"),
    "fail by hand": lambda task, now: rules.fail_by_hand(task, HOPELESS, now),
    "retry": lambda task, now: rules.retry(task, PLAN, now),
    "replay": lambda task, now: rules.replay(task, PLAN, None, now),
    "finish by hand": lambda task, now: rules.finish_by_hand(task, PLAN, now),
    "finish the phase": lambda task, now: rules.finish_by_hand(task, PLAN, now, phase_only=True),
    "reschedule": lambda task, now: rules.reschedule(task, now + timedelta(seconds=5), now),
    "set priority": lambda task, now: rules.set_priority(task, -task.priority - 1, now),
    "annotate": lambda task, now: rules.annotate(task, '{"n":1}', now),
}
PHASES = ("script", "video", "youtube")
NAMES = ("0", "1", "2", "a", "b", "c", "d", "e", "f", "g")

limits = st.sampled_from([None, None, 3, 2, 1, 0])
spans = st.integers(1, 30_000).map(lambda millis: timedelta(milliseconds=millis))
picks = st.integers(0, 1_000)


class Twins(RuleBasedStateMachine):
    """Runs each operation on a store and on the memory store; each example uses its own pipeline."""

    opened: OpenedStore
    numbers = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.number = next(self.numbers)
        self.pipeline = f"p{self.number}"
        self.store: Store = self.opened.store
        # If the store's clock can't be set, the twin reads the store's clock, and times set by the stores aren't compared.
        self.exact = self.opened.entry.clock
        self.twin = MemoryStore(self.store.now)
        self.old: list[Task] = []  # earlier versions of rows, from which a late writer starts

    def rows(self) -> list[Task]:
        return sorted(self.twin.find(Filter(hidden=True), limit=1_000).tasks, key=lambda task: task.task_id)

    def both(self, operation: Callable[[Store], Any]) -> tuple[Any, Any]:
        return operation(self.store), operation(self.twin)

    def agree(self, one: Any, other: Any) -> None:
        assert type(one) is type(other), (one, other)
        match one, other:
            case Task(), Task():
                assert same(self._comparable(one), self._comparable(other)), (one, other)
            case ((Inserted() | Existing() | Swapped()), _):
                self.agree(one.task, other.task)
            case list(), list():
                assert len(one) == len(other), (one, other)
                for mine, theirs in zip(one, other, strict=True):
                    self.agree(mine, theirs)
            case Held(), Held():
                assert (one.task_id, one.version, one.cancel_requested) == (
                    other.task_id,
                    other.version,
                    other.cancel_requested,
                )
                assert not self.exact or one.leased_until == other.leased_until
            case ((Stale() | Conflict() | Lost()), _):
                assert one == other
            case _:
                pytest.fail(f"no such answer: {one!r}")

    def _comparable(self, task: Task) -> Task:
        return task if self.exact else replace(task, updated_at=task.created_at, started_at=None, leased_until=None)

    def task_id(self, name: str) -> str:
        return f"{self.number}-{name}"

    # ── operations ──

    @initialize(keys=st.lists(st.sampled_from(["", "ann", "bob"]), min_size=8, max_size=8))
    def begin(self, keys: list[str]) -> None:
        tasks = [
            new(self.store, self.task_id(f"{n}"), pipeline=self.pipeline, limit_key=key) for n, key in enumerate(keys)
        ]
        self.agree(*self.both(lambda store: store.insert(tasks)))

    @rule(
        names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4),
        phase=st.sampled_from(["schedule", "script", "image", "video"]),
        priority=st.integers(-2, 2),
        wait=st.integers(-5, 5),
        key=st.sampled_from(["", "ann", "bob"]),
        unique=st.sampled_from([None, None, "k1", "k2"]),
        unique_for=st.sampled_from([None, "10s", "forever"]),
    )
    def add(
        self,
        names: list[str],
        phase: str,
        priority: int,
        wait: int,
        key: str,
        unique: str | None,
        unique_for: str | None,
    ) -> None:
        run_at = self.store.now() + timedelta(seconds=wait)
        tasks = [
            new(
                self.store,
                self.task_id(name),
                pipeline=self.pipeline,
                phase=phase,
                priority=priority,
                run_at=run_at,
                limit_key=key,
                unique=unique,
                unique_for=unique_for if unique else None,
                payload={"name": name, "제목": [1, None, 2.5]},
                awaiting="signal:images.ready" if phase == "image" else None,
            )
            for name in names
        ]
        self.agree(*self.both(lambda store: store.insert(tasks)))

    @rule(
        phases=st.lists(st.sampled_from(PHASES), min_size=1, max_size=3),
        limit=st.integers(0, 6),
        slots=limits,
        key_slots=limits,
        lease_for=spans,
        most=st.sampled_from([None, None, 3, 1]),
        names=st.sampled_from([None, None, None, ["0", "1"], ["2", "a", "c"]]),
        worker=st.sampled_from(["w1", "w2"]),
    )
    def claim(
        self,
        phases: list[str],
        limit: int,
        slots: int | None,
        key_slots: int | None,
        lease_for: timedelta,
        most: int | None,
        names: list[str] | None,
        worker: str,
    ) -> None:
        wants = [
            PhaseClaim(
                pipeline=self.pipeline, phase=phase, limit=limit, lease_for=lease_for, slots=slots, key_slots=key_slots
            )
            for phase in phases
        ]
        ids = None if names is None else [self.task_id(name) for name in names]
        claim = Claim(worker, wants, ids, most)
        self.agree(*self.both(lambda store: store.claim(claim)))

    @rule(changes=st.lists(st.tuples(picks, picks), min_size=1, max_size=6), claims=st.booleans())
    def move(self, changes: list[tuple[int, int]], claims: bool) -> None:
        """Change some rows, most from their present version, some from an earlier one."""
        moves = self._moves(changes)
        want = PhaseClaim(pipeline=self.pipeline, phase="script", limit=2, lease_for=timedelta(seconds=9), slots=2)
        claim = Claim("w3", [want]) if claims else None
        one, other = self.both(lambda store: store.settle_and_claim(moves, claim))
        self.agree(one[0], other[0])
        self.agree(one[1], other[1])

    @rule(changes=st.lists(st.tuples(picks, picks), min_size=1, max_size=6))
    def move_only(self, changes: list[tuple[int, int]]) -> None:
        moves = self._moves(changes)
        self.agree(*self.both(lambda store: store.swap(moves)))

    def _moves(self, changes: list[tuple[int, int]]) -> list[Move]:
        rows = self.rows()
        moves: dict[str, Move] = {}
        for pick, choice in changes:
            known = self.old if self.old and pick % 5 == 4 else rows
            if known:
                before = known[pick % len(known)]
                possible = self._possible(before)
                moves.setdefault(before.task_id, Move(before, possible[choice % len(possible)]))
        self.old = (self.old + [move.before for move in moves.values()])[-10:]
        return list(moves.values())

    def _possible(self, before: Task) -> list[Task]:
        """Return the results of all rules that are allowed for a row now."""
        found = []
        for operation in OPERATIONS.values():
            try:
                after = operation(before, self.store.now())
            except OnerowError:
                continue
            if after is not before:
                found.append(after)
        return found

    @rule(picked=st.lists(picks, min_size=1, max_size=4))
    def rescue(self, picked: list[int]) -> None:
        running = [row for row in self.rows() if row.status is PROCESSING]
        chosen = {running[pick % len(running)].task_id: running[pick % len(running)] for pick in picked if running}
        moves = [Move(row, rules.rescue(row, self.store.now()), if_dead=True) for row in chosen.values()]
        self.agree(*self.both(lambda store: store.swap(moves)))

    @rule(picked=st.lists(st.tuples(picks, st.sampled_from([0, 0, 0, -1, 1])), min_size=1, max_size=4), lease_for=spans)
    def extend(self, picked: list[tuple[int, int]], lease_for: timedelta) -> None:
        rows = self.rows()
        chosen = {rows[pick % len(rows)].task_id: (rows[pick % len(rows)], by) for pick, by in picked if rows}
        leases = [Lease(row.task_id, row.token + by) for row, by in chosen.values()]
        self.agree(*self.both(lambda store: store.extend(leases, lease_for)))

    @rule(picked=st.lists(picks, min_size=1, max_size=3))
    def remove(self, picked: list[int]) -> None:
        known = [*(row for row in self.rows() if row.ended), *self.old]
        chosen = {known[pick % len(known)].task_id: known[pick % len(known)] for pick in picked if known}
        one, other = self.both(lambda store: store.remove(list(chosen.values())))
        assert one == other
        # An id that is added again after its row was removed starts with new versions, so its earlier rows are dropped.
        left = {row.task_id for row in self.rows()}
        self.old = [row for row in self.old if row.task_id in left]

    @precondition(lambda self: self.exact)
    @rule(span=spans)
    def wait(self, span: timedelta) -> None:
        self.opened.later(span)

    @rule(name=st.sampled_from(NAMES), texts=st.lists(st.text("ab조", max_size=3), max_size=3))
    def print(self, name: str, texts: list[str]) -> None:
        task_id = self.task_id(name)
        lines = [LogLine(task_id, self.store.now(), "script", 1, "out", text) for text in texts]
        self.both(lambda store: store.append_log(lines))
        one, other = self.both(lambda store: store.read_log(task_id, tail=5))
        assert [line.text for line in one.lines] == [line.text for line in other.lines]
        assert one.dropped == other.dropped

    @rule(name=st.sampled_from("xyz"), version=st.integers(0, 3), drop=st.booleans())
    def note(self, name: str, version: int, drop: bool) -> None:
        kind = f"kind of {self.number}"
        if drop:
            assert self.store.drop_notes(kind, [name]) == self.twin.drop_notes(kind, [name])
        else:
            note = Note(kind, name, {"version": version}, version)
            assert self.store.write_notes([note]) == self.twin.write_notes([note])
        one, other = self.both(lambda store: store.notes(kind))
        assert [(n.name, n.body, n.version) for n in one] == [(n.name, n.body, n.version) for n in other]

    @rule(
        statuses=st.frozensets(st.sampled_from(Status), max_size=2),
        parked=st.none() | st.booleans(),
        hidden=st.booleans(),
        order=st.sampled_from(["newest", "oldest", "due", "ended"]),
        limit=st.integers(1, 4),
        key=st.sampled_from([None, "", "ann"]),
    )
    def look(
        self, statuses: frozenset[Status], parked: bool | None, hidden: bool, order: Order, limit: int, key: str | None
    ) -> None:
        where = Filter(pipeline=self.pipeline, statuses=statuses, parked=parked, hidden=hidden, limit_key=key)
        for _ in range(3):
            one, other = self.both(lambda store: store.find(where, limit=limit, order=order))
            self.agree(one.tasks, other.tasks)
            assert (one.next is None) == (other.next is None)
        one, other = self.both(lambda store: store.count(where))
        assert {repr(tally) for tally in one} == {repr(tally) for tally in other}

    # ── invariants ──

    @invariant()
    def all_rows_are_the_same(self) -> None:
        mine = every_row(self.store, pipeline=self.pipeline)
        theirs = {row.task_id: row for row in self.rows()}
        assert set(mine) == set(theirs)
        for task_id, row in mine.items():
            self.agree(row, theirs[task_id])

    @invariant()
    def no_slot_has_two_holders(self) -> None:
        running = [row for row in self.rows() if row.status is PROCESSING]
        slots = [(row.phase, row.slot) for row in running if row.slot is not None]
        key_slots = [(row.phase, row.limit_key, row.key_slot) for row in running if row.key_slot is not None]
        assert len(slots) == len(set(slots))
        assert len(key_slots) == len(set(key_slots))

    @invariant()
    def no_key_has_two_holders(self) -> None:
        held = [(row.user_id, row.held_key) for row in self.rows() if row.held_key is not None]
        assert len(held) == len(set(held))


def test_a_store_behaves_like_the_memory_store(opened: OpenedStore) -> None:
    machine = type("Machine", (Twins,), {"opened": opened, "numbers": itertools.count()})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(15, settings().max_examples // 5),
            stateful_step_count=40,
            deadline=None,
            phases=[phase for phase in Phase if phase is not Phase.explain],  # the explain phase takes minutes
            suppress_health_check=list(HealthCheck),
        ),
    )
