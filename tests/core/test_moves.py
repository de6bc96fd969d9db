"""Every move from every status, and invariants under long random sequences of moves."""

import copy
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onerow.core import corruption, rules
from onerow.core.errors import IllegalMove, OnerowError
from onerow.core.moves import MOVES, Line
from onerow.core.plan import PhasePlan, Plan
from onerow.core.retry import Retry
from onerow.core.rules import checkpoints
from onerow.core.status import ENDS, NEXT, PROCESSING, WAITING, Status
from onerow.core.task import Task, changed_fields
from onerow.core.times import FAR
from tests.samples import BROKEN, HOPELESS, LEASE, NOW, PLAN, SECOND, a_task, in_status

Operation = Callable[[Task, datetime], Task]
LATER = NOW + timedelta(days=30)
ONE_PHASE = Plan(name="videos", phases=(PhasePlan(name="script"),))
ONLY_WAITS = Plan(name="videos", phases=(PhasePlan(name="script", kind="wait_until", field="at"),))
WAITS = Plan(name="videos", phases=(PhasePlan(name="script", kind="wait_for", signal="go"), PhasePlan(name="next")))
GATHERS = Plan(name="videos", phases=(PhasePlan(name="script", kind="wait_children", all_must_succeed=True),))
ON_TIMEOUT = Plan(
    name="videos",
    phases=(PhasePlan(name="script", kind="wait_for", signal="go", on_timeout="next"), PhasePlan(name="next")),
)

# Each move with the arguments that decide to which status it leads.
OPERATIONS: dict[str, list[Operation]] = {
    "claim": [lambda task, now: rules.claimed(task, "w2", now + LEASE, now, None, None)],
    "complete": [
        lambda task, now: rules.complete(task, PLAN, '{"a":1}', now),
        lambda task, now: rules.complete(task, ONE_PHASE, None, now),
    ],
    "finish": [lambda task, now: rules.finish(task, "1", now)],
    "fail": [
        lambda task, now: rules.fail(task, BROKEN, PLAN, now),
        lambda task, now: rules.fail(task, HOPELESS, PLAN, now),
    ],
    "crash": [lambda task, now: rules.crash(task, BROKEN, now)],
    "interrupt": [lambda task, now: rules.interrupt(task, "host killed", now)],
    "snooze": [lambda task, now: rules.snooze(task, SECOND, now)],
    "sleep": [lambda task, now: rules.sleep(task, "sleep:", SECOND, now)],
    "skip": [
        lambda task, now: rules.skip(task, PLAN, "no audio", now),
        lambda task, now: rules.skip(task, ONE_PHASE, "no audio", now),
    ],
    "cancel itself": [lambda task, now: rules.cancel_itself(task, "deleted", now)],
    "hand back": [
        lambda task, now: rules.hand_back(task, now),
        lambda task, now: rules.hand_back(task, now, started=False),
    ],
    "stop": [lambda task, now: rules.stop_cancelled(task, now)],
    "park": [lambda task, now: rules.park(task, "signal:go", None, now)],
    "report": [lambda task, now: rules.report(task, now, progress="0.5", steps="{}")],
    "wait": [
        lambda task, now: rules.wait(task, "wait:go", "signal:go", None, now),
        lambda task, now: rules.wait(task, "wait:go", "signal:go", SECOND, now),
    ],
    "remember": [lambda task, now: checkpoints.remember(task, "download", '"file"', now)],
    "spawn": [lambda task, now: checkpoints.spawned(task, "spawn:parts", 3, now)],
    "quarantine": [lambda task, now: corruption.quarantine(replace(task, logs_json="{}"), now)],
    "gather": [
        lambda task, now: rules.gather(task, ONE_PHASE, {}, now),
        lambda task, now: rules.gather(task, GATHERS, {Status.COMPLETED: 2}, now),
        lambda task, now: rules.gather(task, GATHERS, {Status.FAILED: 2}, now),
    ],
    "rescue": [lambda task, now: rules.rescue(task, now)],
    "uncount": [lambda task, now: rules.uncount_rescue(task, task, now)],
    "pass": [lambda task, now: rules.pass_(task, WAITS, now), lambda task, now: rules.pass_(task, ONLY_WAITS, now)],
    "expire": [
        lambda task, now: rules.expire(task, None, now),
        lambda task, now: rules.expire(task, ON_TIMEOUT, now),
        lambda task, now: rules.expire(task, ONE_PHASE, now),
    ],
    "rename": [lambda task, now: rules.rename(task, PLAN, now)],
    "release": [lambda task, now: rules.release(task, now)],
    "release key": [lambda task, now: rules.release_key(task, now)],
    "bury": [lambda task, now: rules.bury(task, now)],
    "signal": [lambda task, now: rules.signal(task, "go", "1", "s1", now)],
    "cancel": [lambda task, now: rules.cancel(task, now)],
    "fail by hand": [lambda task, now: rules.fail_by_hand(task, BROKEN, now)],
    "retry": [lambda task, now: rules.retry(task, PLAN, now)],
    "replay": [lambda task, now: rules.replay(task, PLAN, None, now)],
    "finish by hand": [
        lambda task, now: rules.finish_by_hand(task, PLAN, now),
        lambda task, now: rules.finish_by_hand(task, PLAN, now, phase_only=True),
    ],
    "reschedule": [lambda task, now: rules.reschedule(task, now + SECOND, now)],
    "set priority": [lambda task, now: rules.set_priority(task, 5, now)],
    "annotate": [lambda task, now: rules.annotate(task, '{"seen":true}', now)],
}


def samples(line: Line, status: Status) -> list[Task]:
    """Return tasks in a status that differ in the fields that decide to which status the move leads."""
    task = in_status(status, unique="k", unique_for="1d")
    if line.name == "expire" and status is WAITING:
        return [task.with_changes(NOW, awaiting="signal:go")]
    if line.name == "gather" and status is WAITING:
        return [task.with_changes(NOW, awaiting="children")]
    if status is not PROCESSING:
        return [task]
    tried = task.with_changes(NOW, crash_count=rules.CRASH_LIMIT - 1, rescue_count=Retry().max_rescues)
    return [task, rules.cancel(task, NOW), tried]


def test_the_test_covers_every_line_of_the_table_of_moves() -> None:
    assert set(OPERATIONS) == {line.name for line in MOVES}


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("line", MOVES, ids=lambda line: line.name)
def test_a_move_is_allowed_from_exactly_its_statuses(line: Line, status: Status) -> None:
    led_to: set[Status] = set()
    for operation in OPERATIONS[line.name]:
        for task in samples(line, status):
            before = copy.copy(task)
            if status in line.leads:
                after = operation(task, LATER)
                led_to.add(after.status)
                # The second cancel of a running task returns the same task; every other move increases the version.
                assert after is task or after.version == task.version + 1
                assert after is task or after.updated_at == LATER
            else:
                with pytest.raises(IllegalMove):
                    operation(task, LATER)
            assert task == before
    assert led_to == line.leads.get(status, frozenset())


def test_the_table_of_moves_and_the_table_of_statuses_agree() -> None:
    reached = {(start, end) for line in MOVES for start, ends in line.leads.items() for end in ends}
    assert reached == {(old, new) for old in Status for new in NEXT[old]}


def test_an_illegal_move_names_the_task_and_its_status() -> None:
    with pytest.raises(IllegalMove, match="task t1 is completed; only failed tasks can be retried") as caught:
        rules.retry(in_status(Status.COMPLETED), PLAN, NOW)
    assert (caught.value.task_id, caught.value.status) == ("t1", "completed")


def test_a_task_rejects_a_status_that_is_not_allowed_to_follow() -> None:
    with pytest.raises(IllegalMove, match="cancelled and can't become waiting"):
        in_status(Status.CANCELLED).to(WAITING, NOW)


@pytest.mark.parametrize(
    "line", [line for line in MOVES if not line.stays and line.name != "quarantine"], ids=lambda line: line.name
)
@pytest.mark.parametrize("status", sorted(ENDS))
def test_a_purged_task_rejects_every_move(line: Line, status: Status) -> None:
    buried = rules.bury(in_status(status), NOW)
    for operation in OPERATIONS[line.name]:
        with pytest.raises(IllegalMove):
            operation(buried, LATER)


def test_changed_fields_lists_what_a_move_changed() -> None:
    task = in_status(PROCESSING)
    after = rules.report(task, NOW + SECOND, progress="0.5")
    assert changed_fields(task, after) == ("updated_at", "version", "progress_json")
    assert changed_fields(task, task) == ()


def test_an_equal_key_read_from_a_store_counts_as_unchanged() -> None:
    """Two equal keys read from a store are different objects; comparing by identity would slow down the write."""
    task = replace(in_status(PROCESSING), unique_key="key", held_key="".join(["k", "ey"]))
    after = rules.complete(task, PLAN, None, NOW + SECOND)
    assert after.phase != task.phase
    assert "held_key" not in changed_fields(task, after)


# ── invariants ────────────────────────────────────────────────────────────────────────────────────────────────────


def must_hold(before: Task, after: Task) -> None:
    held = after.status is PROCESSING
    assert after.status in NEXT[before.status]
    assert (after.leased_by is not None) == held
    assert (after.leased_until is not None) == held
    assert held or (after.slot is None and after.key_slot is None)
    assert after.token >= before.token
    assert after.ended == (after.completed_at is not None)
    assert after.awaiting is None or after.status is WAITING
    assert after.ended or after.held_key == after.unique_key
    assert after.held_until is None or after.ended
    assert 0 <= after.retry_count - after.retry_base <= after.max_retries
    assert 0 <= after.crash_count <= rules.CRASH_LIMIT
    assert 0 <= after.rescue_count <= Retry().max_rescues + (after.status is Status.FAILED)
    assert after.attempt >= 0
    assert after.run_at <= FAR
    assert not (after.cancel_requested and after.status in (WAITING, Status.COMPLETED, Status.FAILED))
    assert after.generation - before.generation in (0, 1)
    assert (after.error is None) == (after.error_class is None)
    if (
        before.status is Status.CANCELLED and after.error_class != "corrupt"
    ):  # a quarantine may write to a cancelled task
        assert set(changed_fields(before, after)) <= {
            "updated_at",
            "version",
            "metadata_json",
            "held_key",
            "held_until",
        }


STEPS = sorted(
    (name, index) for name, operations in OPERATIONS.items() if name != "bury" for index in range(len(operations))
)


@settings(max_examples=150, deadline=None)
@given(
    operations=st.lists(st.sampled_from(STEPS), min_size=1, max_size=40),
    unique_for=st.sampled_from([None, "1d", "forever"]),
    waits=st.lists(st.integers(0, 200_000), min_size=40, max_size=40),
)
def test_invariants_hold_under_any_sequence_of_moves(
    operations: list[tuple[str, int]], unique_for: str | None, waits: list[int]
) -> None:
    task, now = a_task(unique="k", unique_for=unique_for), NOW
    for (name, index), wait in zip(operations, waits, strict=False):
        now += timedelta(seconds=wait)
        try:
            after = OPERATIONS[name][index](task, now)
        except OnerowError:
            continue
        must_hold(task, after)
        task = after
