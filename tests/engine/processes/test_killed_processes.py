"""P11: no process is left behind when the worker, the host process or a reaper is killed."""

import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from onerow.engine.processes import CannotStart, ProcessHost, Program
from tests.engine.processes.kit import (
    PRELUDE,
    TREES,
    Runs,
    alive,
    ended,
    host_processes_of,
    linux_only,
    noted,
    reapers_of,
    start_worker,
    until,
)

pytestmark = linux_only


def test_a_killed_worker_leaves_no_process(tmp_path: Path) -> None:
    trees = [tree.replace("'grandchild'", f"'g{number}'") for number, tree in enumerate(TREES.values())]
    prelude = [PRELUDE.replace("'grandchild'", f"'g{number}'") for number in range(len(trees))]
    program = "".join(
        f"sys.argv[1] = {text!r}\nstart({tree!r} + '\\nignore_term(); idle()')\n"
        for text, tree in zip(prelude, trees, strict=True)
    )
    with start_worker(tmp_path, program + "time.sleep(600)") as worker:
        pids = [noted(tmp_path, f"g{number}") for number in range(len(trees))]
        under = [one.pid for one in psutil.Process(worker.pid).children(recursive=True)]
        assert set(pids) <= set(under)
        worker.kill()
    until(lambda: not any(map(alive, under)), "every process of the worker to end")


def test_a_killed_worker_leaves_no_child_while_a_fork_of_it_lives(tmp_path: Path) -> None:
    program = "start('note(\"child\"); idle()')\nif os.fork() == 0:\n    time.sleep(600)\ntime.sleep(600)"
    with start_worker(tmp_path, program) as worker:
        child = noted(tmp_path, "child")
        others = until(
            lambda: [one for one in psutil.Process(worker.pid).children() if one.name() != "onerow-host"], "the fork"
        )
        worker.kill()
    until(lambda: not alive(child), "the child to end")
    for other in others:
        assert alive(other.pid)
        other.kill()


def test_host_process_and_reapers_ignore_signals_for_the_worker(runs: Runs) -> None:
    child = runs.start("note('ready'); idle()")
    runs.pid("ready")
    for one in [*host_processes_of(os.getpid()), *reapers_of(os.getpid())]:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            one.send_signal(number)
    assert ended(runs.start("sys.exit(4)")).code == 4
    assert alive(child.pid)


def test_children_survive_their_host_process_and_can_still_be_stopped(runs: Runs) -> None:
    child = runs.start(TREES["daemonised"] + "\nidle()")
    grandchild = runs.pid("grandchild")
    [process_host] = host_processes_of(os.getpid())
    process_host.kill()
    until(lambda: not host_processes_of(os.getpid()), "the host process to end")
    assert ended(runs.start("sys.exit(4)")).code == 4
    assert alive(grandchild)
    child.stop(0.1)
    assert ended(child).stopped
    assert not alive(grandchild)


def test_a_child_whose_reaper_is_killed_is_reported_after_its_tree_has_ended(runs: Runs) -> None:
    child = runs.start(TREES["without_its_environment"] + "\nidle()")
    runs.pid("grandchild")
    [reaper] = reapers_of(os.getpid())
    reaper.kill()
    exit = ended(child)
    assert (exit.code, exit.signal, exit.stopped) == (None, signal.SIGKILL, False)
    assert runs.alive() == []
    assert ended(runs.start("sys.exit(4)")).code == 4


def test_an_idle_reaper_that_is_killed_is_replaced(runs: Runs) -> None:
    ended(runs.start(""))
    [reaper] = reapers_of(os.getpid())
    reaper.kill()
    until(lambda: not reapers_of(os.getpid()), "the reaper to end")
    assert ended(runs.start("sys.exit(4)")).code == 4


def test_a_child_whose_host_process_and_reaper_are_killed_is_ended_by_the_worker(runs: Runs) -> None:
    children = [runs.start(TREES["daemonised"] + "\nidle()"), runs.start("idle()")]
    runs.pid("grandchild")
    doomed = [*host_processes_of(os.getpid()), *psutil.Process(children[0].pid).parents()[:1]]
    for one in doomed:
        one.suspend()
    for one in doomed:
        one.kill()
    assert ended(children[0]).signal == signal.SIGKILL
    assert runs.alive() == []
    assert not alive(children[0].pid)
    children[1].stop(0)
    assert ended(children[1]).stopped


def test_an_orphan_of_a_killed_worker_host_process_and_reaper_is_ended_by_the_next_host_process(
    tmp_path: Path, runs: Runs
) -> None:
    mine = runs.start("note('mine'); idle()")
    with start_worker(tmp_path, "start('note(\"child\"); idle()')\ntime.sleep(600)") as worker:
        orphan = noted(tmp_path, "child")
        killed = [psutil.Process(worker.pid), *host_processes_of(worker.pid), *reapers_of(worker.pid)]
        for one in killed:
            one.suspend()
        for one in reversed(killed):
            one.kill()
    assert alive(orphan)
    with ProcessHost() as next_process_host:
        next_process_host.start(Program(argv=["/bin/true"]))
        until(lambda: not alive(orphan), "the orphan to end")
    assert alive(mine.pid)


def test_a_close_ends_every_child_and_reports_it(tmp_path: Path) -> None:
    process_host = ProcessHost()
    runs = Runs(process_host, tmp_path)
    children = [runs.start("ignore_term(); idle()") for _ in range(3)]
    process_host.close()
    assert [exit.stopped for child in children if (exit := child.wait(0))] == [True] * 3
    assert not host_processes_of(os.getpid())
    process_host.close()
    with pytest.raises(CannotStart, match="closed"):
        runs.start("")


def test_a_closed_process_host_leaves_no_descriptor_thread_or_zombie(tmp_path: Path) -> None:
    def held() -> tuple[set[str], set[int], list[int]]:
        threads = {thread.ident or 0 for thread in threading.enumerate()}
        return set(os.listdir("/proc/self/fd")), threads, [one.pid for one in psutil.Process().children()]

    before = held()
    with ProcessHost() as process_host:
        runs = Runs(process_host, tmp_path)
        for _ in range(2):
            children = [runs.start(f"sys.exit({code})") for code in range(12)]
            assert [ended(child).code for child in children] == list(range(12))
        with pytest.raises(CannotStart):
            process_host.start(Program(argv=["/no/such"]))
        child = runs.start("idle()")
        [reaper] = psutil.Process(child.pid).parents()[:1]
        reaper.kill()
        assert not ended(child).seen
        [host] = host_processes_of(os.getpid())
        host.kill()
        until(lambda: not alive(host.pid), "the host process to end")
        assert ended(runs.start("sys.exit(4)")).code == 4
    assert held() == before
