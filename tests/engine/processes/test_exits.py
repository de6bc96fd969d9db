"""How a child ended: its exit code, its signal, and whether it was stopped."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from onerow.engine.processes import Child
from tests.engine.processes.kit import Runs, ended, linux_only, reapers_of, until

pytestmark = linux_only


def test_an_exit_tells_the_code_of_the_child(runs: Runs) -> None:
    exit = ended(runs.start("sys.exit(7)"))
    assert (exit.code, exit.signal, exit.stopped) == (7, None, False)


def test_an_exit_tells_the_signal_that_ended_the_child(runs: Runs) -> None:
    exit = ended(runs.start("os.kill(os.getpid(), signal.SIGSEGV)"))
    assert (exit.code, exit.signal, exit.stopped) == (None, signal.SIGSEGV, False)


def test_an_error_in_the_block_of_a_child_ends_it(runs: Runs) -> None:
    def fail_beside(child: Child) -> None:
        with child:
            runs.pid("child")
            raise ValueError("in the block")

    child = runs.start("note('child'); idle()")
    with pytest.raises(ValueError, match="in the block"):
        fail_beside(child)
    exit = child.wait(0)
    assert exit is not None
    assert exit.stopped
    assert runs.alive() == []


def test_every_child_has_its_own_exit(runs: Runs) -> None:
    children = [runs.start(f"sys.exit({code})") for code in range(5)]
    assert [ended(child).code for child in children] == [0, 1, 2, 3, 4]
    assert [ended(child).code for child in children] == [0, 1, 2, 3, 4]


def test_threads_that_wait_for_the_same_child_get_the_same_exit(runs: Runs) -> None:
    child = runs.start("noted('go'); sys.exit(3)")
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(child.wait, timeout) for timeout in (None, None, 60, 60, None)]
        assert child.wait(0) is None
        (runs.folder / "go").write_text("0")
        exits = [one.result(900) for one in waiting]
    assert {exit.code for exit in exits if exit} == {3}
    assert len({id(exit) for exit in exits}) == 1
    (runs.folder / "go").unlink()


def test_a_reaper_runs_one_child_after_another(runs: Runs) -> None:
    for code in range(5):
        assert ended(runs.start(f"sys.exit({code})")).code == code
    assert len(reapers_of(os.getpid())) == 1


def test_a_stopped_child_may_handle_the_term_itself(runs: Runs) -> None:
    child = runs.start("signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); note('ready'); idle()")
    runs.pid("ready")
    child.stop(60)
    exit = ended(child)
    assert (exit.code, exit.signal, exit.stopped) == (5, None, True)


def test_a_child_that_ignores_term_is_killed_after_the_grace(runs: Runs) -> None:
    child = runs.start("ignore_term(); note('ready'); idle()")
    runs.pid("ready")
    child.stop(0.2)
    exit = ended(child)
    assert (exit.code, exit.signal, exit.stopped) == (None, signal.SIGKILL, True)


def test_a_second_stop_can_only_make_the_kill_earlier(runs: Runs) -> None:
    child = runs.start("ignore_term(); note('ready'); idle()")
    runs.pid("ready")
    child.stop(3600)
    assert child.wait(0.05) is None
    child.stop(0)
    child.stop(3600)
    assert ended(child).signal == signal.SIGKILL
    child.stop(0)


def test_a_child_stopped_by_a_signal_still_handles_term(runs: Runs) -> None:
    child = runs.start(
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(6)); note('ready'); os.kill(os.getpid(), 19); idle()"
    )
    runs.pid("ready")
    until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED, "the child to be stopped")
    child.stop(60)
    assert ended(child).code == 6
