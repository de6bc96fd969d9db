"""Frozen and stopped workers: their tasks do not run twice at the same time, and another process replaces them."""

import os
import signal

import pytest

from onerow import Status
from tests.engine.kit import until
from tests.faults import app
from tests.faults.kit import Place, freeze, gone

pytestmark = pytest.mark.faults


@pytest.mark.slow  # a worker may be silent for ten seconds
def test_a_worker_whose_handler_holds_the_gil_is_replaced_and_the_handler_ends_by_its_timeout(place: Place) -> None:
    worker = place.worker()
    first = worker.pid()
    held = place.queue.add(app.frozen, True)
    place.begun(held)
    good = place.queue.add_many(app.frozen, [False] * 3)
    assert [place.ended(task).status for task in good] == [Status.COMPLETED] * 3
    done = place.ended(held)
    assert (done.status, done.error_class) == (Status.FAILED, "timeout"), place.output()
    assert gone(first)
    assert f"worker process {first} gave no sign of life" in place.output()


@pytest.mark.slow
def test_a_frozen_worker_ends_after_its_grace_when_it_is_asked_to_stop(place: Place) -> None:
    worker = place.worker("--grace", "1s")
    process = worker.pid()
    place.begun(place.queue.add(app.frozen, True))
    worker.terminate()
    assert worker.wait() == 70
    assert gone(process)
    assert "did not end in time and was killed" in place.output()


@pytest.mark.promise("P2")
@pytest.mark.parametrize("kind", ["isolated", pytest.param("command", marks=pytest.mark.slow)])
def test_a_process_ends_with_its_lease_although_its_worker_is_stopped(place: Place, kind: str) -> None:
    worker = place.worker()
    if kind == "isolated":
        task = place.queue.add(app.stubborn, {})
        begun = place.begun(task)
        processes = [int(begun[1]), int(begun[-1].partition("=")[2])]
    else:
        task = place.queue.add(app.programs, {"kind": "plain", "seconds": 600})
        processes = [int(place.begun(task)[1])]
    stopped = worker.pid()
    # Without its supervisor, which would kill it: then the process host would end the work because of that.
    worker.supervisor.send_signal(signal.SIGSTOP)
    freeze(place, stopped)
    until(lambda: all(map(gone, processes)), "the end of the work")
    assert not gone(stopped)
    assert place.queue.get(task.task_id).status is Status.PROCESSING
    os.kill(stopped, signal.SIGCONT)
    worker.supervisor.send_signal(signal.SIGCONT)


@pytest.mark.slow  # a machine that gets no processor time for two seconds loses the lease
def test_a_process_runs_for_many_leases_while_its_worker_extends_them(place: Place) -> None:
    place.worker()
    task = place.queue.add(app.programs, {"kind": "plain", "seconds": 7})
    done = place.ended(task)
    assert (done.status, done.results) == (Status.COMPLETED, {"program": "program"})
    assert len(place.notes("begin")) == 1
