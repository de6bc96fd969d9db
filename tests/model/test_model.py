"""Every interleaving of two workers, a rescuer, an operator and their faults keeps the promises; weaker designs do not."""

from itertools import combinations

import pytest

from onerow.core import rules
from onerow.core.plan import PhasePlan, Plan
from onerow.core.retry import Retry
from onerow.core.status import PROCESSING
from onerow.core.task import Task
from tests.model.model import START, Design, Explored, Violation, explore
from tests.samples import a_task

ONE_RETRY = Retry(1, wait="10s", jitter=0)
PLAN = Plan(
    name="videos", phases=(PhasePlan(name="script", retry=ONE_RETRY), PhasePlan(name="upload", retry=ONE_RETRY))
)
FAULTS = ("kill", "freeze", "outage", "lost answer", "failure", "cancel")


def first() -> Task:
    return a_task(phase="script", max_retries=1, run_at=START, created_at=START, updated_at=START)


def search(faults: dict[str, int], design: Design | None = None) -> Explored:
    return explore(PLAN, first(), faults, design)


def check(faults: dict[str, int]) -> None:
    found = search(faults)
    assert found.ends["completed"] > 0
    assert ("failed" in found.ends) == (faults.get("failure", 0) >= 2)
    assert ("cancelled" in found.ends) == ("cancel" in faults)


@pytest.mark.parametrize("faults", list(combinations(FAULTS, 3)), ids="+".join)
def test_every_interleaving_of_three_kinds_of_faults_keeps_the_promises(faults: tuple[str, ...]) -> None:
    check(dict.fromkeys(faults, 1))


@pytest.mark.parametrize("fault", FAULTS)
def test_every_interleaving_of_two_faults_of_a_kind_with_failures_and_a_retry_keeps_the_promises(fault: str) -> None:
    check({"failure": 2, "retry": 1, fault: 2})


@pytest.mark.slow
@pytest.mark.parametrize("faults", list(combinations(FAULTS, 4)), ids="+".join)
def test_every_interleaving_of_four_kinds_of_faults_keeps_the_promises(faults: tuple[str, ...]) -> None:
    check(dict.fromkeys(faults, 1))


def test_a_store_that_compares_the_status_only_accepts_a_stale_write() -> None:
    weak = Design(accepts=lambda stored, read: stored.status is PROCESSING)
    with pytest.raises(Violation, match="a worker that lost its lease writes nothing") as caught:
        search({"freeze": 1}, weak)
    steps = [step for step in caught.value.trace if step != "a tick passes"]
    assert "the rescuer takes the task" in steps, "the shortest way is a frozen worker that continues after a rescue"


def test_a_store_that_compares_the_id_only_accepts_a_stale_write() -> None:
    with pytest.raises(Violation, match="a worker that lost its lease writes nothing"):
        search({"freeze": 1}, Design(accepts=lambda stored, read: True))


def test_without_a_new_token_at_the_rescue_a_worker_believes_a_lost_outcome_written() -> None:
    def rescue(task: Task, now: object, *, by: str, plan: Plan) -> Task:
        return rules.interrupt(task, "worker died", now, by=by, plan=plan)  # type: ignore[arg-type]

    with pytest.raises(Violation, match="an outcome that a worker believes written is written"):
        search({"freeze": 1}, Design(rescue=rescue))


def test_a_rescue_without_observation_takes_a_task_from_a_live_worker() -> None:
    with pytest.raises(Violation, match="no second attempt starts while a live worker runs the first"):
        search({"outage": 1}, Design(observes=False))
