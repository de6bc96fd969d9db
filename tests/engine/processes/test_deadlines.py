"""A child is stopped when its deadline passes, and by which signals."""

import os
import signal
import time

from tests.engine.processes.kit import TREES, Runs, ended, linux_only

pytestmark = linux_only


def test_a_child_whose_deadline_passes_is_stopped_with_its_tree(runs: Runs) -> None:
    tree = TREES["deaf_to_term"]
    child = runs.start("ignore_term()\n" + tree + "\nidle()", deadline=(time.monotonic() + 3600, 0.1))
    runs.pid("grandchild")
    child.extend(time.monotonic() + 0.1, 0.1)
    exit = ended(child)
    assert (exit.signal, exit.stopped) == (signal.SIGKILL, True)
    assert runs.alive() == []


def test_a_child_that_is_never_extended_ends_at_the_deadline_of_its_start(runs: Runs) -> None:
    child = runs.start("idle()", deadline=(time.monotonic() + 0.2, 0.0))
    exit = ended(child)
    assert exit.stopped
    assert exit.signal in (signal.SIGTERM, signal.SIGKILL)


def test_a_child_whose_deadline_is_extended_runs_on(runs: Runs) -> None:
    began = time.monotonic()
    child = runs.start("note('ready'); noted('go'); sys.exit(4)", deadline=(began + 3600, 0.0))
    runs.pid("ready")
    child.extend(time.monotonic() + 7200, 0.0)
    (runs.folder / "go").write_text("0")
    assert ended(child).code == 4
    (runs.folder / "go").unlink()
    child.extend(0.0, 0.0)  # does nothing after the end, nor to the next child of the same reaper
    next_child = runs.start("note('next'); idle()", deadline=(time.monotonic() + 3600, 0.0))
    runs.pid("next")
    assert next_child.wait(0.2) is None
    next_child.extend(time.monotonic(), 0.0)
    assert ended(next_child).stopped


def test_a_child_that_was_started_without_a_deadline_can_be_given_one(runs: Runs) -> None:
    child = runs.start("note('ready'); idle()")
    runs.pid("ready")
    child.limit(time.monotonic() + 3600, 0.0, None)
    assert child.wait(0.1) is None
    child.extend(time.monotonic(), 0.0)
    assert ended(child).stopped


def test_a_child_can_be_given_a_memory_limit_later(runs: Runs) -> None:
    child = runs.start("note('ready'); noted('go'); kept = b'x' * 200_000_000; idle()")
    runs.pid("ready")
    child.limit(time.monotonic() + 3600, 0.0, 100_000_000)
    (runs.folder / "go").write_text("0")
    assert ended(child).over_memory


def test_a_stop_sends_its_own_signal_to_the_program_alone(runs: Runs) -> None:
    number = signal.SIGRTMIN + 3
    child = runs.start(
        f"signal.signal({number}, lambda *_: os._exit(8))\nsignal.signal(signal.SIGTERM, lambda *_: None)\n"
        "note('ready')\nidle()",
        stop_signal=number,
    )
    runs.pid("ready")
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(0.2) is None
    child.stop(60)
    assert ended(child).code == 8
