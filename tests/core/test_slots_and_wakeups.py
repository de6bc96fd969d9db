"""Free slots, the bound of output, and wake-ups as pure rules."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onerow.core import rules
from onerow.core.output_bound import OutputBound, byte_size
from onerow.core.slots import PhaseSlots, free_slots
from onerow.core.wakeups import wakes
from tests.samples import NOW, SECOND, a_task, claimed


@pytest.mark.parametrize(
    "limit, used, free",
    [
        (0, [], []),
        (3, [], [0, 1, 2]),
        (3, [1], [0, 2]),
        (3, [None], [0, 1]),  # claimed before there was a limit
        (2, [5], [0]),  # the limit was lowered
        (2, [4, 5], []),
        (1, [0, 1, 2], []),
    ],
)
def test_running_tasks_count_against_a_limit_whatever_slot_they_hold(
    limit: int, used: list[int | None], free: list[int]
) -> None:
    assert free_slots(limit, used) == free


@given(st.integers(0, 8), st.lists(st.none() | st.integers(0, 10), max_size=10))
def test_free_slots_are_unused_and_never_exceed_the_limit(limit: int, used: list[int | None]) -> None:
    free = free_slots(limit, used)
    assert not set(free) & set(used)
    assert len(free) == max(0, limit - len(used))


def test_a_full_key_admits_no_task_and_other_keys_are_unaffected() -> None:
    slots = PhaseSlots(3, 1, [("a", 0, 0)])
    assert slots.take("a") is None
    assert slots.take("b") == (1, 0)
    assert slots.take("b") is None
    assert slots.take("") == (2, None)
    assert slots.take("") is None


def test_a_phase_without_limits_admits_every_task_without_a_slot() -> None:
    slots = PhaseSlots(None, None, [("a", None, None)])
    assert (slots.free, slots.take("a"), slots.is_full("a")) == (None, (None, None), False)


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(0, 12), st.integers(0, 40))
def test_no_more_lines_are_dropped_than_the_bound_requires(sizes: list[int], lines: int, size: int) -> None:
    bound = OutputBound(lines, size)
    count, freed = bound.drop(len(sizes), sum(sizes), sizes)
    assert freed == sum(sizes[:count])
    assert not bound.exceeded(len(sizes) - count, sum(sizes) - freed)
    assert count == 0 or bound.exceeded(len(sizes) - count + 1, sum(sizes[count - 1 :]))


def test_the_size_of_a_line_is_counted_in_bytes() -> None:
    assert [byte_size(text) for text in ("", "abc", "조수", "🌊")] == [0, 3, 6, 4]


def test_a_new_task_wakes_if_it_is_due_and_not_parked() -> None:
    assert wakes(None, a_task())
    assert not wakes(None, a_task(run_at=NOW + SECOND))
    assert not wakes(None, a_task(awaiting="signal:go"))


def test_a_waiting_task_wakes_when_it_becomes_due_and_not_again() -> None:
    later = a_task(run_at=NOW + timedelta(hours=1))
    assert wakes(later, rules.reschedule(later, NOW, NOW))
    assert not wakes(a_task(), rules.annotate(a_task(), "{}", NOW))


def test_a_second_cancel_request_does_not_wake() -> None:
    running = claimed(a_task())
    asked = rules.cancel(running, NOW)
    assert wakes(running, asked)
    assert not wakes(asked, asked.with_changes(NOW))
