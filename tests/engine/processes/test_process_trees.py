"""P11: a stopped task leaves no process behind, however its program hides its processes."""

import os
import subprocess
import sys
import time

import pytest

from onerow.engine.processes.host.tree import _HAS_CHILDREN_FILE
from tests.engine.processes.kit import TREES, Runs, alive, ended, every_tree, linux_only, until

pytestmark = linux_only


@every_tree
def test_a_stop_ends_a_grandchild_that_is(runs: Runs, tree: str) -> None:
    child = runs.start(tree + "\nidle()")
    assert alive(runs.pid("grandchild"))
    child.stop(0.3)
    exit = ended(child)
    assert exit.stopped
    assert runs.alive() == []


@every_tree
def test_the_end_of_a_child_ends_a_grandchild_that_is(runs: Runs, tree: str) -> None:
    exit = ended(runs.start(tree + "\nnoted('grandchild'); sys.exit(3)"))
    assert (exit.code, exit.stopped) == (3, False)
    assert runs.alive() == []


def test_leftover_processes_of_a_child_get_a_moment_to_finish(runs: Runs) -> None:
    ended(runs.start("fork(lambda: (time.sleep(0.02), note('finished')))"))
    assert (runs.folder / "finished").exists()


def test_a_stop_ends_a_chain_in_which_each_process_forks_the_next_and_exits(runs: Runs) -> None:
    # The chain lasts for five minutes, longer than the test waits: only the stop can end it in time. A look at the process
    # table would miss a chain this fast, so each process of it adds a byte to a file.
    child = runs.start("""
def chain():
    last = time.monotonic() + 300
    for number in range(150_000):
        if os.fork(): os._exit(0)
        os.setsid()
        with open('links.txt', 'ab') as file: file.write(b'.')
        if time.monotonic() > last: break
        time.sleep(0.002)
fork(chain)
idle()
""")
    links = runs.folder / "links.txt"
    until(lambda: links.exists() and links.stat().st_size > 5, "a chain of some processes")
    child.stop(0)
    assert ended(child).stopped
    length = links.stat().st_size
    time.sleep(1)
    assert links.stat().st_size == length, "the chain went on after the report of its end"


def test_a_term_reaches_a_grandchild_whose_parent_lives_on(runs: Runs) -> None:
    child = runs.start("""
ignore_term()
middle = os.fork()
if middle == 0:
    last = os.fork()
    if last == 0:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
        grandchild()
    os._exit(os.waitstatus_to_exitcode(os.waitpid(last, 0)[1]))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(middle, 0)[1]))
""")
    runs.pid("grandchild")
    child.stop(3600)
    exit = ended(child)
    assert (exit.code, exit.signal) == (7, None)


@pytest.mark.parametrize("listing", ["_by_task", "_ByStat"])
def test_descendants_are_found_in_every_generation(listing: str) -> None:
    if listing == "_by_task" and not _HAS_CHILDREN_FILE:
        pytest.skip("this kernel does not list the children of a process")
    program = (
        "import os\nfrom onerow.engine.processes.host import tree\n"
        f"tree._HAS_CHILDREN_FILE = {listing == '_by_task'}\n"
        "reading, writing = os.pipe()\nfor _ in range(4):\n"
        "    pid = os.fork()\n"
        "    if pid: break\n    os.write(writing, b'%d ' % os.getpid())\n"
        "else:\n    os.write(writing, b'.')\n"
        "if _ or not pid:\n    os.read(0, 1); os._exit(0)\n"
        "heard = b''\nwhile not heard.endswith(b'.'): heard += os.read(reading, 100)\n"
        "made = set(map(int, heard[:-1].split()))\n"
        "found = tree.descendants()\nassert len(made) == 4, made\nassert found == made, (found, made)\n"
        "below = tree.descendants(skip={pid})\nassert below == set(), below\n"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", program], env=env, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.wait(900) == 0


def test_every_process_is_stopped_before_its_children_are_listed_and_before_any_is_killed() -> None:
    program = (
        "import os, signal\nfrom onerow.engine.processes.host import tree\n"
        "tree.adopt_orphans(b'test')\n"
        "reading, writing = os.pipe()\n"
        "for _ in range(3):\n"
        "    pid = os.fork()\n"
        "    if pid: break\n    os.write(writing, b'%d ' % os.getpid())\n"
        "else:\n    os.write(writing, b'.')\n"
        "if _ or not pid:\n    os.read(0, 1); os._exit(0)\n"
        "heard = b''\nwhile not heard.endswith(b'.'): heard += os.read(reading, 100)\n"
        "made = list(map(int, heard[:-1].split()))\n"
        "calls, send = [], tree._signal\n"
        "tree._signal = lambda pid, number: calls.append((pid, number)) or send(pid, number)\n"
        "assert tree.end() == (set(made), set()), calls\n"
        "stops = [(pid, signal.SIGSTOP) for pid in made]\n"
        "assert calls[:3] == stops, (calls, made)\n"
        "assert set(calls[3:]) == {(pid, signal.SIGKILL) for pid in made}, calls\n"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", program], env=env, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.wait(900) == 0


def test_a_stop_ends_a_tree_that_keeps_forking(runs: Runs) -> None:
    child = runs.start("""
ignore_term()
for number in range(400):
    fork(lambda: (os.setsid(), note(f'member{number}'), idle()))
    time.sleep(0.001)
idle()
""")
    runs.pid("member20")
    child.stop(0.05)
    ended(child)
    assert runs.alive() == []


def test_a_stop_of_some_of_twenty_children_ends_only_their_own_trees(runs: Runs) -> None:
    tree = TREES["daemonised"].replace("grandchild", "lambda: (note(sys.argv[2]), idle())")
    children = [runs.start(tree + "\nidle()", f"n{number}") for number in range(20)]
    pids = [runs.pid(f"n{number}") for number in range(20)]
    for child in children[::2]:
        child.stop(0.2)
    for child in children[::2]:
        ended(child)
    assert [alive(pid) for pid in pids] == [False, True] * 10
    assert all(child.wait(0) is None for child in children[1::2])
