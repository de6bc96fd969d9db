"""What became of a message: decided from the states of its tasks."""

import pytest
from msgspec.structs import replace

from onerow.core.message_outcomes import Outcome, outcome_at_receipt, outcome_of_work
from onerow.core.status import Status
from onerow.core.task import Task
from tests.samples import NOW, SECOND, a_task

WAITING = a_task("waiting")


def of(status: str, **fields: object) -> Task:
    return replace(WAITING, status=Status(status), **fields)


RUNS_HERE = of("processing", leased_by="me", leased_until=NOW + SECOND)
RUNS_ELSEWHERE = of("processing", leased_by="other", leased_until=NOW + SECOND)
DEAD = of("processing", leased_by="other", leased_until=NOW - SECOND)


@pytest.mark.parametrize(
    "tasks, outcome",
    [
        ([WAITING], None),
        ([of("completed"), WAITING], None),
        ([of("completed"), RUNS_HERE], None),
        ([], Outcome.OK),
        ([of("completed")], Outcome.OK),
        ([of("completed"), of("cancelled")], Outcome.OK),
        ([of("cancelled")], Outcome.SKIP_CANCEL),
        ([of("completed"), of("failed")], Outcome.FAILED),
    ],
)
def test_the_outcome_of_the_work(tasks: list[Task], outcome: Outcome | None) -> None:
    assert outcome_of_work(tasks) == outcome


@pytest.mark.parametrize(
    "task, fast, classic",
    [
        (WAITING, None, None),
        (RUNS_HERE, None, None),
        (of("completed"), Outcome.OK, Outcome.OK),
        (of("cancelled"), Outcome.SKIP_CANCEL, Outcome.SKIP_CANCEL),
        (of("failed"), Outcome.SKIP_CLAIM, Outcome.SKIP_MARK_PROCESSING),
        (RUNS_ELSEWHERE, Outcome.SKIP_CLAIM, Outcome.LOCK_FAIL),
        (DEAD, Outcome.SKIP_CLAIM, Outcome.SKIP_MARK_PROCESSING),
    ],
)
def test_the_outcome_at_receipt(task: Task, fast: Outcome | None, classic: Outcome | None) -> None:
    terms = {"worker": "me", "now": NOW}
    assert outcome_at_receipt([task], after_work=False, **terms) == fast  # type: ignore[arg-type]
    assert outcome_at_receipt([task], after_work=True, **terms) == classic  # type: ignore[arg-type]
