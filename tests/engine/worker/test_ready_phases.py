"""Which phases a worker with many phases claims from."""

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from onerow.engine.worker import claim_planner
from onerow.engine.worker.claim_planner import ReadyPhases
from onerow.engine.worker.roles.sweeps import FEW_PHASES

NOW = datetime(2026, 11, 15)
FIRST, SECOND = ("p0000", "run"), ("p0001", "run")


class Clock:
    """A store and a clock: each question takes `takes` seconds."""

    def __init__(self) -> None:
        self.time, self.takes = 100.0, 0.0
        self.asked = 0
        self.due = [FIRST]

    def __call__(self) -> float:
        return self.time

    def ready(self, phases: object, by: datetime) -> list[tuple[str, str]]:
        self.asked += 1
        self.time += self.takes
        return self.due


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(claim_planner, "monotonic", clock)
    return clock


def phases_of(clock: Any) -> ReadyPhases:
    served: list[Any] = [
        SimpleNamespace(pipeline=f"p{number:04d}", phase=SimpleNamespace(name="run"))
        for number in range(FEW_PHASES + 1)
    ]
    return ReadyPhases(clock, served)


def names(phases: ReadyPhases) -> list[tuple[str, str]]:
    return [(served.pipeline, served.phase.name) for served in phases.candidates(NOW)]


def test_a_wake_up_asks_the_store_again(clock: Clock) -> None:
    phases = phases_of(clock)
    assert names(phases) == [FIRST]
    clock.due = [FIRST, SECOND]
    assert names(phases) == [FIRST]
    phases.look()
    assert names(phases) == [FIRST, SECOND]
    assert clock.asked == 2


def test_a_slow_question_is_asked_seldom_while_other_tasks_can_be_claimed(clock: Clock) -> None:
    clock.takes = 0.04
    phases = phases_of(clock)
    names(phases)
    for _ in range(10):
        phases.look()
        names(phases)
        clock.time += 0.01
    assert clock.asked == 1
    clock.time += 1.0
    clock.due = [SECOND]
    assert names(phases) == [SECOND]


def test_a_slow_question_is_asked_at_once_if_no_phase_is_known(clock: Clock) -> None:
    clock.takes = 0.04
    clock.due = []
    phases = phases_of(clock)
    assert names(phases) == []
    clock.due = [SECOND]
    assert names(phases) == [SECOND]
