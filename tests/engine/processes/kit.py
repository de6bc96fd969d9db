"""Programs that start process trees, and what is alive of them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from onerow.engine.processes import Child, Exit, ProcessHost, Program

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="whole trees can be ended on Linux only")

PRELUDE = """
import os, signal, subprocess, sys, time
def note(name):
    with open(name + '.tmp', 'w') as file: file.write(str(os.getpid()))
    os.rename(name + '.tmp', name)
def idle():
    while True: time.sleep(60)
def ignore_term(): signal.signal(signal.SIGTERM, signal.SIG_IGN)
def fork(act):
    if os.fork() == 0:
        try: act()
        finally: os._exit(0)
def noted(name):
    while not os.path.exists(name): time.sleep(0.005)
def grandchild(): note('grandchild'); idle()
"""

# Ways in which a child can hide a grandchild.
TREES = {
    "forked": "fork(grandchild)",
    "in_a_session_of_its_own": "fork(lambda: (os.setsid(), grandchild()))",
    "daemonised": "fork(lambda: (os.setsid(), fork(grandchild)))",
    "deaf_to_term": "fork(lambda: (os.setsid(), ignore_term(), fork(grandchild)))",
    "without_its_environment": """
def bare():
    os.execve(sys.executable, [sys.executable, '-c', sys.argv[1] + '\\ngrandchild()'], {})
fork(lambda: (os.setsid(), fork(bare)))""",
    "stopped": "fork(lambda: (os.setsid(), fork(lambda: (note('grandchild'), os.kill(os.getpid(), signal.SIGSTOP)))))",
}
every_tree = pytest.mark.parametrize("tree", TREES.values(), ids=TREES)


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait up to two minutes for a condition and return its value."""
    deadline = time.monotonic() + 120
    while not (value := condition()):
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.005)
    return value


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def noted(folder: Path, name: str) -> int:
    return int(until(lambda: (folder / name).exists() and (folder / name).read_text(), name))


class Runs:
    """Starts Python programs under a process host, in a folder in which they note their pids."""

    def __init__(self, process_host: ProcessHost, folder: Path) -> None:
        self.process_host = process_host
        self.folder = folder

    def start(
        self, program: str, *args: str, deadline: tuple[float, float] | None = None, cwd: Path | None = None,
        stderr: int | None = 2, **settings: Any,
    ) -> Child:  # fmt: skip
        argv = [sys.executable, "-S", "-c", PRELUDE + program, PRELUDE, *args]
        settings |= {"argv": argv, "cwd": cwd or self.folder, "stderr": stderr}
        return self.process_host.start(Program(**settings), deadline=deadline)

    def pid(self, name: str) -> int:
        return noted(self.folder, name)

    def alive(self) -> list[int]:
        """Return the noted processes that are alive."""
        pids = [int(note.read_text()) for note in self.folder.iterdir() if not note.suffix]
        return [pid for pid in pids if alive(pid)]


def ended(child: Child) -> Exit:
    exit = child.wait(900)
    assert exit is not None, "the child is still there"
    return exit


def host_processes_of(pid: int) -> list[psutil.Process]:
    return [one for one in psutil.Process(pid).children() if one.name() == "onerow-host" and alive(one.pid)]


def reapers_of(pid: int) -> list[psutil.Process]:
    return [
        one
        for process_host in host_processes_of(pid)
        for one in process_host.children()
        if one.name() == "onerow-reaper"
    ]


WORKER = (
    "import os, sys, time\nfrom pathlib import Path\nfrom onerow.engine.processes import ProcessHost, Program\n"
    "process_host = ProcessHost()\n"
    "def start(program):\n"
    "    argv = [sys.executable, '-S', '-c', sys.argv[1] + program, sys.argv[1]]\n"
    "    process_host.start(Program(argv=argv, cwd=Path(sys.argv[2]), stderr=2))\n"
)


def start_worker(folder: Path, program: str) -> "subprocess.Popen[bytes]":
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", WORKER + program, PRELUDE, str(folder)], env=env)
