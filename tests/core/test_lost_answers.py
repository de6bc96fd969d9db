"""Whether an outcome was written is read from the row: from its history, or from the token of its lease."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

import pytest
from msgspec.structs import replace

from onerow.core import rules
from onerow.core.history import MAX_HISTORY, Entry
from onerow.core.rules.attempts import (
    CancelledItself,
    Crashed,
    Done,
    Failed,
    Finished,
    Interrupted,
    Jumped,
    Outcome,
    Skipped,
    Sleeping,
    Snoozed,
    Stopped,
    Unready,
    Unstarted,
    Waiting,
)
from onerow.core.status import CANCELLED, PROCESSING
from onerow.core.task import Task
from onerow.core.times import spell
from tests.samples import BROKEN, HOPELESS, NOW, PLAN, SECOND, a_task, claimed

WRITTEN_AT = NOW + 2 * SECOND
LATER = NOW + timedelta(days=30)
OUTCOMES: list[Outcome] = [
    Done('"text"'), Jumped("youtube"), Finished("1"), Waiting("wait:go", "signal:go", SECOND), Failed(BROKEN),
    Failed(HOPELESS), Crashed(BROKEN), Interrupted("its host ended"), Snoozed(SECOND), CancelledItself("deleted"),
    Skipped("no audio"), Sleeping("sleep:", SECOND), Stopped("cancel"), Stopped("drain"), Unready("no model"),
]  # fmt: skip


def decision(task: Task, outcome: Outcome, by: str = "w1") -> Callable[[datetime], Task | None]:
    return lambda now: rules.decide(task, PLAN, outcome, now, by)


def written(task: Task, outcome: Outcome, now: datetime = WRITTEN_AT, by: str = "w1") -> Task:
    after = decision(task, outcome, by)(now)
    assert after is not None
    return after


def ran_on(task: Task) -> Task:
    """Return the task after another worker has failed it; an ended one is replayed before."""
    if task.status is CANCELLED:
        return task
    if task.ended:
        task = rules.replay(task, PLAN, "script", NOW)
    due = replace(task, awaiting=None, run_at=NOW)
    return written(claimed(due, LATER, "w2"), Failed(HOPELESS), LATER, "w2")


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_a_written_outcome_is_found_whatever_follows_it(outcome: Outcome) -> None:
    task = claimed(a_task())
    after = written(task, outcome)
    for row in (after, ran_on(after), ran_on(ran_on(after))):
        assert rules.recorded(row, task, decision(task, outcome)) == after


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_an_outcome_is_not_found_if_the_lease_was_taken(outcome: Outcome) -> None:
    task = claimed(a_task())
    rescued = rules.rescue(task, LATER, by="w2")
    of_other = written(claimed(rescued, LATER, "w2"), outcome, LATER, "w2")
    # The same worker may claim the task again: its next attempt does not count as the lost one.
    of_next_attempt = written(claimed(rescued, LATER, "w1"), outcome, LATER, "w1")
    for row in (rescued, of_other, of_next_attempt):
        assert rules.recorded(row, task, decision(task, outcome)) is None


def test_another_outcome_of_the_same_attempt_does_not_count() -> None:
    task = claimed(a_task())
    row = ran_on(written(task, Failed(BROKEN)))
    assert rules.recorded(row, task, decision(task, Done("1"))) is None


def test_the_same_attempt_before_a_replay_does_not_count() -> None:
    first = claimed(a_task())
    done = written(first, Finished("1"))
    again = claimed(rules.replay(done, PLAN, "script", WRITTEN_AT), WRITTEN_AT)
    taken = rules.rescue(again, LATER, by="w2")
    assert (again.attempt, again.leased_by) == (first.attempt, first.leased_by)
    assert rules.recorded(taken, again, decision(again, Finished("1"))) is None


def test_an_outcome_that_is_not_in_the_history_is_known_by_the_token_only() -> None:
    task = claimed(a_task())
    row = written(task, Unstarted())
    is_recorded = partial(rules.recorded, before=task, decide=decision(task, Unstarted()))
    assert is_recorded(row) == row
    assert is_recorded(claimed(row, LATER, "w2")) is None
    assert is_recorded(task) is None


def test_an_outcome_is_found_until_it_is_dropped_from_a_full_history() -> None:
    def noted(task: Task) -> Task:
        entry = Entry(at=spell(NOW), what="signal", by="w1", note="x" * 1000)
        return replace(task, logs_json=task.history_with(entry))

    task = claimed(a_task())
    while len(task.logs_json) < MAX_HISTORY - 2000:
        task = noted(task)
    after = written(task, Done("1"))
    row = claimed(replace(after, awaiting=None, run_at=NOW), LATER, "w2")
    found = []
    for _ in range(100):
        row = noted(row)
        found.append(rules.recorded(row, task, decision(task, Done("1"))) == after)
        assert found[-1] == (after.history[-1] in row.history)
    assert row.history[0].what == "dropped"
    assert (found[0], found[20], found[-1]) == (True, True, False)


def test_a_history_that_can_not_be_read_shows_nothing() -> None:
    task = claimed(a_task())
    row = replace(written(task, Done("1")), logs_json="no json")
    assert rules.recorded(row, task, decision(task, Done("1"))) == row
    assert rules.recorded(replace(row, token=9, status=PROCESSING), task, decision(task, Done("1"))) is None


def test_a_quarantined_row_is_recorded_although_its_token_has_changed() -> None:
    task = replace(claimed(a_task()), logs_json="{}")
    after = written(task, Done("1"))
    assert after.token > task.token
    assert rules.recorded(after, task, decision(task, Done("1"))) == after
