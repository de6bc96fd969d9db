"""Rescue with real workers: only tasks whose lease has ended are rescued, also when clocks step or workers stop."""

import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from conftest import UNDER_CI
from onerow import Status
from onerow.core.times import read
from tests.engine.kit import until
from tests.faults import app
from tests.faults.kit import Place, freeze

pytestmark = pytest.mark.faults

LEASE = timedelta(seconds=8)  # of every phase of app.slow


class Clock:
    """A wall clock that the test steps, for the processes that load it."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            (pytest.fail if UNDER_CI else pytest.skip)("stepping the clock needs a C compiler")
        library = folder / "clock_step.so"
        source = Path(__file__).with_name("clock_step.c")
        argv = [str(compiler), "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        subprocess.run(argv, check=True)
        self._file = folder / "clock_step"
        self.step(timedelta(0))
        self.environment: Mapping[str, str] = {"LD_PRELOAD": str(library), "CLOCK_STEP": str(self._file)}

    def step(self, by: timedelta) -> None:
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("q", int(by.total_seconds())))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("others", ["alone", "beside another", "ahead"])
def test_no_running_task_is_rescued_when_the_clock_steps_forward(place: Place, clock: Clock, others: str) -> None:
    holder = place.worker("--phases", "in_loop", env={} if others == "ahead" else clock.environment)
    if others != "alone":
        place.worker("--phases", "in_process", env=clock.environment)
    task = place.queue.add(app.slow, {"kind": "async", "for": 15})
    place.begun(task)
    if others != "alone":
        seen = place.queue.get(task.task_id).leased_until
        until(lambda: place.queue.get(task.task_id).leased_until != seen, "a heartbeat")
    clock.step(timedelta(hours=1))
    until(lambda: place.queue.get(task.task_id).phase != "in_loop", "the end of the phase")
    after = place.queue.get(task.task_id)
    assert [(entry.what, entry.phase) for entry in after.history] == [("advanced", "in_loop")]
    assert len(place.notes("begin")) == 1, place.output()
    assert holder.pids()


def test_p9_the_task_of_a_frozen_worker_runs_again_within_lease_and_three_seconds(place: Place) -> None:
    """By the times in the store. A slow test machine is allowed twice as long."""
    frozen = place.worker("--phases", "in_loop")
    task = place.queue.add(app.slow, {"kind": "async"})
    place.begun(task)
    place.worker()  # is running before the other one is frozen
    pid = frozen.pid()
    freeze(place, pid)
    try:
        last = place.queue.get(task.task_id).leased_until
        assert last is not None
        done = place.ended(task)
    finally:
        with suppress(ProcessLookupError):  # its supervisor ends it after some seconds without a sign of life
            os.kill(pid, signal.SIGCONT)
    assert done.status is Status.COMPLETED
    rescued_at = read(next(entry.at for entry in done.history if entry.what != "advanced"))
    assert last <= rescued_at <= last + timedelta(seconds=3) + (LEASE + timedelta(seconds=3))
