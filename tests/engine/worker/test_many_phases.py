"""With very many served phases, a worker's cost depends on the phases that have due tasks, not on all of them."""

from collections import Counter
from typing import Any

import pytest

from onerow import Pipeline, Queue, Status
from onerow.engine.events.events import Events
from onerow.engine.worker.ready_phases import FEW, MOST
from onerow.engine.worker.roles.sweeps import WaitPhaseSweeper
from onerow.ports import Claim
from tests.engine.kit import PATIENCE, ended, everything, until, work, working

MANY = 3 * MOST // 2
PAYLOAD = {"at": "2026-01-01T00:00:00Z"}


def pipelines(count: int = MANY, **terms: Any) -> list[Pipeline]:
    """Pipelines of two phases with code and a wait between them."""
    made = []
    for number in range(count):
        pipeline = Pipeline(f"line-{number:04d}")
        pipeline.phase(name="first", **terms)(lambda job: None)
        pipeline.wait_until("pause", field="at")
        pipeline.phase(name="last")(lambda job: None)
        made.append(pipeline)
    return made


class Calls:
    """Counts the calls of a store's methods, and keeps the claims."""

    def __init__(self, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: Counter[str] = Counter()
        self.claims: list[Claim] = []
        store = queue.store
        for name in ("settle_and_claim", "ready", "find", "due", "notes", "swap"):
            monkeypatch.setattr(store, name, self._counted(name, getattr(store, name)))

    def _counted(self, name: str, method: Any) -> Any:
        def counted(*given: Any, **more: Any) -> Any:
            self.names[name] += 1
            if name == "settle_and_claim" and given[1] is not None:
                self.claims.append(given[1])
            return method(*given, **more)

        return counted


@pytest.mark.parametrize("terms", [{}, {"concurrency": 1}], ids=str)
def test_all_tasks_of_very_many_phases_complete(queue: Queue, terms: dict[str, Any]) -> None:
    lines = pipelines(**terms)
    for line in lines[::3]:
        queue.add_many(line, [PAYLOAD] * 2)
    work(queue, *lines)
    tasks = everything(queue)
    assert len(tasks) == 2 * len(lines[::3])
    assert {task.status for task in tasks} == {Status.COMPLETED}


def test_an_idle_worker_of_very_many_phases_asks_once_and_claims_nothing(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(queue, monkeypatch)
    with working(queue, *pipelines(), interval="1h"):
        until(lambda: calls.names["notes"] > 12, "some rounds of the other roles", PATIENCE)
    assert calls.claims == []
    assert calls.names["due"] == 0


def test_a_claim_names_only_phases_with_due_tasks(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = pipelines()
    queue.add(lines[77], PAYLOAD)
    calls = Calls(queue, monkeypatch)
    work(queue, *lines)
    assert {want.pipeline for claim in calls.claims for want in claim.phases} == {lines[77].name}


def test_a_task_added_to_a_phase_of_an_idle_worker_is_found(queue: Queue) -> None:
    lines = pipelines()
    with working(queue, *lines, interval="1h"):
        for number in (5, 120, 6):
            task = queue.add(lines[number], PAYLOAD)
            ended(queue, task)


def test_phases_that_do_not_fit_in_one_claim_are_in_a_later_one(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = pipelines()
    for line in lines:
        queue.add(line, PAYLOAD)
    calls = Calls(queue, monkeypatch)
    work(queue, *lines, concurrency=400)
    assert {task.status for task in everything(queue)} == {Status.COMPLETED}
    assert max(len(claim.phases) for claim in calls.claims) <= MOST


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_sweep_over_phases_without_code_makes_no_call_per_pipeline(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    plans = {line.name: line.plan for line in pipelines(count)}
    wait_phases = WaitPhaseSweeper(queue.store, plans, Events())
    wait_phases.tick(queue.store.now())
    calls = Calls(queue, monkeypatch)
    wait_phases.tick(queue.store.now())
    assert calls.names["find"] == 1
    assert calls.names["ready"] + calls.names["due"] <= (FEW if count == FEW else 1)
