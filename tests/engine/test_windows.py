"""Clients without the modules and calls that Windows lacks. This is not a run on Windows."""

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import asyncio, ctypes, logging, os, select, signal, socket, sqlite3, subprocess, sys, tempfile, threading, uuid, zoneinfo
import click, click.testing, msgspec, rich.console, rich.table, rich.text

loop = asyncio.new_event_loop()  # that of Unix needs what is removed below

ABSENT = {"fcntl", "resource", "termios", "pwd", "grp", "pty", "tty", "syslog", "readline"}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in ABSENT:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Absent())
for module, names in {
    os: "fork forkpty getuid geteuid getgid getpgid setsid killpg sysconf pidfd_open posix_spawn waitid nice getloadavg "
        "sched_getaffinity register_at_fork pipe2 uname O_NOFOLLOW O_CLOEXEC O_NONBLOCK WNOHANG fchmod",
    signal: "SIGKILL SIGSTOP SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGCHLD SIGXCPU SIGRTMIN pthread_sigmask",
    select: "poll epoll",
    socket: "AF_UNIX send_fds recv_fds MSG_DONTWAIT",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
sys.platform = "win32"
"""

CLIENT = """
from onerow import Pipeline, Queue, Status, Worker, BadInput

pipeline = Pipeline("p")
pipeline.phase(name="run")(len)
queue = Queue("sqlite:///tasks.db")
queue.publish(pipeline)
task = queue.add(pipeline, [1])
assert queue.get(task.task_id).status is Status.WAITING
[lease] = queue.claim(pipeline)
assert lease.complete(1).status is Status.COMPLETED
assert loop.run_until_complete(queue.add_async(pipeline, [2])).status is Status.WAITING
try:
    Worker(queue, [pipeline])
except BadInput as error:
    assert "workers do not run on Windows" in str(error), error
else:
    raise AssertionError("a worker was built")
queue.close()
"""

COMMANDS = """
from onerow.cli.main import main

def onerow(*words):
    return click.testing.CliRunner().invoke(main, words)

for words in (["migrate"], ["counts"], ["list"], ["workers"], ["doctor"]):
    found = onerow(*words, "--store", "sqlite:///tasks.db")
    assert found.exit_code == 0, (words, found.output, found.exception)
found = onerow("worker", "app")
assert found.exit_code == 64, (found.exit_code, found.output)
assert "workers do not run on Windows" in found.output, found.output
assert "WSL 2" in found.output
"""


@pytest.mark.parametrize("program", [CLIENT, COMMANDS], ids=["library", "commands"])
def test_a_client_needs_nothing_that_windows_lacks_and_a_worker_says_so(tmp_path: Path, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
