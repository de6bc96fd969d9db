"""Thousands of schedules in virtual time: no promise is broken, and a schedule that breaks one is shrunk."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from onerow import Retry
from onerow.core.rules import attempts
from tests.schedules.schedule import Fault, Operation, Schedule, TaskPlan, schedule_of, shrunk
from tests.schedules.simulation import Run, violations
from tests.schedules.virtual_modules import virtual_modules

ROOT = Path(__file__).parents[2]
MANY = int(os.environ.get("SCHEDULES", "150"))


@pytest.fixture(autouse=True)
def _virtual() -> Iterator[None]:
    with virtual_modules():
        yield


def report(schedule: Schedule, found: dict[str, list[str]]) -> str:
    """Return the failed schedule, shrunk, with what it breaks."""
    small = shrunk(schedule, lambda smaller: bool(violations(smaller).keys() & found.keys()))
    return f"{small}\n{violations(small)}\nrepeat it: python -m tests.schedules --seed {schedule.seed} --trace"


def check_seeds(first: int, last: int) -> None:
    for seed in range(first, last):
        schedule = schedule_of(seed)
        if found := violations(schedule):
            raise AssertionError(report(schedule, found))


def test_no_schedule_breaks_a_promise() -> None:
    check_seeds(0, MANY)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_no_schedule_of_many_breaks_a_promise(part: int) -> None:
    check_seeds(1000 + part * 1000, 2000 + part * 1000)


# One worker that does everything: a failed attempt, a wait for children, a wait for a signal, and a slot.
EVERYTHING = Schedule(
    1, (TaskPlan(0, takes=0.1, failures=1, signal_at=1.0, children=1),), workers=1, same_host=True, calm=True
)


def kill_points(every: int) -> list[int]:
    run = Run(EVERYTHING)
    assert run.execute() == {}
    return list(range(0, run.steps[0], every))


def check_kills(every: int) -> None:
    for step in kill_points(every):
        schedule = msgspec.structs.replace(EVERYTHING, faults=(Fault("kill", step),))
        assert violations(schedule) == {}, str(schedule)


def test_a_kill_between_any_two_store_calls_breaks_no_promise() -> None:
    assert len(kill_points(1)) > 100
    check_kills(5)


@pytest.mark.slow
def test_a_kill_between_all_store_calls_breaks_no_promise() -> None:
    check_kills(1)


def test_a_seed_gives_the_same_run_in_another_process() -> None:
    schedule = schedule_of(7)
    assert schedule == schedule_of(7)
    run = Run(schedule, trace=True)
    run.execute()
    script = (
        "from tests.schedules.simulation import Run; from tests.schedules.schedule import schedule_of\n"
        "from tests.schedules.virtual_modules import virtual_modules\n"
        "with virtual_modules():\n"
        "    run = Run(schedule_of(7), trace=True); run.execute()\n"
        "    print(run.steps, [(record.at, record.what, record.task) for record in run.records])"
    )
    environment = os.environ | {"PYTHONHASHSEED": "99", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, check=True)
    mine = f"{run.steps} {[(record.at, record.what, record.task) for record in run.records]}"
    assert done.stdout.decode().strip() == mine


def test_a_schedule_that_breaks_a_promise_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a single rescue failed the task, one kill would be enough to break a promise."""
    monkeypatch.setattr(attempts, "_policy", lambda task, plan: Retry(max_rescues=0))
    schedule = Schedule(
        5,
        (TaskPlan(0, takes=1.0), TaskPlan(1, takes=0.3, failures=1), TaskPlan(2, children=1)),
        (Fault("outage", 0.5, lasts=0.5), Fault("kill-body", 1), Fault("lose", 100, 1), Fault("freeze", 150, 1, 4.0)),
        (Operation("cancel", 9.0, 2),),
    )
    found = violations(schedule)
    assert "innocents" in found
    small = shrunk(schedule, lambda smaller: "innocents" in violations(smaller))
    assert [fault.kind for fault in small.faults] == ["kill-body"]
    assert len(small.tasks) < 3
    assert not small.operations
    assert small.calm
    monkeypatch.undo()
    assert violations(small) == {}
