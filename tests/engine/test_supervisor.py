"""The supervisor with scripted worker processes: real processes, no store."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engine.kit import PATIENCE, until

SUPERVISOR = """
import sys
from onerow.engine.worker import supervisor, worker_process
options = eval(sys.argv[1])
supervisor._SHORTEST_LIFE = worker_process.FIRST_REPLACE_PAUSE = 0.2
made = supervisor.Supervisor(sys.argv[2:], options.pop("processes"), lambda line: print(line, flush=True), **options)
sys.exit(made.run())
"""

WORKER = """#!{python}
import os, sys, time
orders, signs = int(os.environ['ONEROW_LIFELINE']), int(os.environ['ONEROW_LIVENESS'])
def sign(silent_at_most=60.0, running=0, settled=0, memory=0):
    os.write(signs, f'{{silent_at_most}} {{running}} {{settled}} {{memory}}\\n'.encode())
def read():
    import fcntl, termios
    while fcntl.ioctl(signs, termios.FIONREAD, bytes(4)) != bytes(4): time.sleep(0.01)
    open({folder!r} + '/read', 'w').close()
def order(): return os.read(orders, 1)
def started():
    number = len([name for name in os.listdir({folder!r}) if name.startswith('worker-')])
    open({folder!r} + f'/worker-{{os.getpid()}}', 'w').close()
    return number
number = started()
"""


class SupervisorProcess:
    """A supervisor in its own process, and the scripted workers that it starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / "worker.py"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, script: str, *, grace: float = 30.0, processes: int = 1, **options: Any) -> None:
        self.write(script)
        env = {name: value for name, value in os.environ.items() if not name.startswith("ONEROW_")}
        options |= {"grace": grace, "processes": processes}
        argv = [sys.executable, "-c", SUPERVISOR, repr(options), str(self.script)]
        with (self.folder / "output.txt").open("wb") as output:
            self._process = subprocess.Popen(argv, env=env, stdout=output, stderr=output)

    def write(self, script: str) -> None:
        text = WORKER.format(python=f"{sys.executable} -S", folder=str(self.folder)) + script
        self.script.write_text(text)
        self.script.chmod(0o755)

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def rounds(self, count: int) -> None:
        """Wait until the supervisor has checked its workers this many times."""
        process = psutil.Process(self.process.pid)
        last = process.num_ctx_switches().voluntary + count
        until(lambda: process.num_ctx_switches().voluntary > last, f"{count} rounds")

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def output(self) -> str:
        return (self.folder / "output.txt").read_text()

    def wait_for_output(self, text: str) -> None:
        until(lambda: text in self.output(), text)

    def workers(self, count: int = 1) -> list[int]:
        """Wait for this many workers; return their pids in the order of their starts."""

        def found() -> list[Path]:
            notes = sorted(self.folder.glob("worker-*"), key=lambda path: path.stat().st_mtime_ns)
            return notes if len(notes) >= count else []

        return [int(path.name.partition("-")[2]) for path in until(found, f"{count} workers\n{self.output()}")]

    def close(self) -> None:
        for pid in [int(path.name.partition("-")[2]) for path in self.folder.glob("worker-*")]:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[SupervisorProcess]:
    made = SupervisorProcess(tmp_path)
    yield made
    made.close()


LEAVES_WHEN_TOLD = """
def tell(state): os.write(signs, f'60.0 0 0 0 0.0 {state}\\n'.encode())
folder = os.path.dirname(__file__)
try:
    os.mkdir(folder + '/busy')  # the first of them is busy
    tell('-')
    while not os.path.exists(folder + '/done'): time.sleep(0.01)
except FileExistsError:
    tell('idle')
    read()
tell('idle')
open(folder + f'/left-{os.getpid()}-{order().decode()}', 'w').close()
"""


def test_with_once_processes_that_have_nothing_to_do_leave_together(supervisor: SupervisorProcess) -> None:
    supervisor.start(LEAVES_WHEN_TOLD, processes=2, once=True)
    until((supervisor.folder / "read").exists, "the sign of the idle one")
    supervisor.rounds(3)
    assert not list(supervisor.folder.glob("left-*"))
    (supervisor.folder / "done").touch()
    assert supervisor.wait() == 0
    assert [path.name[-2:] for path in supervisor.folder.glob("left-*")] == ["-l", "-l"]


def test_a_worker_that_gives_no_sign_of_life_is_killed_and_replaced(supervisor: SupervisorProcess) -> None:
    supervisor.start("sign(0.5 if number == 0 else 60.0)\norder()")
    first, _ = supervisor.workers(2)
    supervisor.wait_for_output(f"worker process {first} gave no sign of life for")
    assert not psutil.pid_exists(first)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0


def test_silence_while_the_supervisor_itself_did_not_run_does_not_count(supervisor: SupervisorProcess) -> None:
    supervisor.start("import threading\nthreading.Thread(target=lambda: (order(), os._exit(0))).start()\n"
                 "sign(4.0)\nread()\nwhile True: sign(4.0); time.sleep(0.05)")  # fmt: skip
    [worker] = supervisor.workers()
    until(lambda: supervisor.script.with_name("read").exists(), "a sign that was read")
    os.kill(worker, signal.SIGSTOP)
    supervisor.rounds(3)  # it has read every sign
    supervisor.signal(signal.SIGSTOP)
    time.sleep(6)
    supervisor.signal(signal.SIGCONT)
    supervisor.rounds(3)  # it sees a worker that has been silent for longer than allowed
    os.kill(worker, signal.SIGCONT)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0
    assert "sign of life" not in supervisor.output()
    assert supervisor.workers() == [worker]


def test_a_worker_that_ignores_a_stop_is_killed_after_its_grace(supervisor: SupervisorProcess) -> None:
    supervisor.start("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nsign()\ntime.sleep(600)", grace=0.1)
    [worker] = supervisor.workers()
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 70
    assert f"worker process {worker} did not end in time and was killed" in supervisor.output()
    assert not psutil.pid_exists(worker)


def test_a_third_signal_kills_at_once(supervisor: SupervisorProcess) -> None:
    supervisor.start("sign()\ntime.sleep(600)", grace=3600)
    [worker] = supervisor.workers()
    for number, words in (
        (signal.SIGINT, "stopping; "),
        (signal.SIGINT, "stopping now"),
        (signal.SIGTERM, "was killed"),
    ):
        supervisor.signal(number)
        supervisor.wait_for_output(words)
    assert supervisor.wait() == 70
    assert not psutil.pid_exists(worker)


def test_the_first_signal_reports_what_it_waits_for_and_how_to_stop_now(supervisor: SupervisorProcess) -> None:
    supervisor.start("sign(60.0, 3)\nread()\nfirst = order()\nopen(__file__ + first.decode(), 'w').close()\n"
                 "second = order()\nopen(__file__ + second.decode(), 'w').close()", grace=25)  # fmt: skip
    supervisor.workers()
    until(lambda: supervisor.script.with_name("read").exists(), "a sign that was read")
    supervisor.signal(signal.SIGINT)
    supervisor.wait_for_output("stopping: waiting up to 25 s for 3 running tasks; press Ctrl-C again to stop now")
    until(lambda: supervisor.script.with_name("worker.pyd").exists(), "the order to drain")
    assert not supervisor.script.with_name("worker.pyh").exists()
    supervisor.signal(signal.SIGINT)
    assert supervisor.wait() == 0
    assert "stopping now: handing back 3 running tasks" in supervisor.output()
    assert supervisor.script.with_name("worker.pyh").exists()


def test_the_first_signal_to_an_idle_worker_does_not_speak_of_waiting(supervisor: SupervisorProcess) -> None:
    supervisor.start("sign()\nread()\norder()\norder()", grace=25)
    supervisor.workers()
    until(lambda: supervisor.script.with_name("read").exists(), "a sign that was read")
    supervisor.signal(signal.SIGINT)
    supervisor.wait_for_output("stopping; press Ctrl-C again to stop now")
    supervisor.signal(signal.SIGINT)
    assert supervisor.wait() == 0
    assert "running task" not in supervisor.output()


def test_a_start_that_fails_is_retried_and_ends_no_healthy_worker(supervisor: SupervisorProcess) -> None:
    script = "sign()\nos.read(orders, 1)"
    supervisor.start(script, processes=2)
    first, second = supervisor.workers(2)
    supervisor.script.unlink()
    os.kill(first, signal.SIGKILL)
    supervisor.wait_for_output("cannot start a worker process")
    supervisor.wait_for_output("retrying in")
    assert psutil.Process(second).status() != psutil.STATUS_ZOMBIE
    supervisor.write(script)
    assert second in supervisor.workers(3)
    assert psutil.Process(second).status() != psutil.STATUS_ZOMBIE
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0


def test_a_worker_that_is_too_old_for_the_store_is_not_started_again(supervisor: SupervisorProcess) -> None:
    supervisor.start("sign()\nif number == 1: sys.exit(78)\norder()", processes=2)
    assert supervisor.wait() == 78
    assert len(supervisor.workers(2)) == 2
    assert "another starts" not in supervisor.output()


def test_a_worker_that_never_becomes_ready_is_started_five_times_and_not_again(supervisor: SupervisorProcess) -> None:
    supervisor.start("os.write(signs, b'\\n')\nos.kill(os.getpid(), 11)")
    assert supervisor.wait() == 71
    assert len(supervisor.workers(5)) == 5
    assert "was killed by SIGSEGV; 5 starts in a row ended before the worker was ready" in supervisor.output()


def test_a_process_that_never_becomes_ready_ends_no_process_that_works(supervisor: SupervisorProcess) -> None:
    works = "try: os.mkdir(__file__ + '.works')\nexcept FileExistsError: sys.exit(1)\nsign(running=1)\norder()"
    supervisor.start(works, processes=2)
    supervisor.workers(6)
    supervisor.wait_for_output("ended with 1; another starts in 16 s")
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0


def test_a_worker_that_was_ready_is_replaced_however_often_it_dies(supervisor: SupervisorProcess) -> None:
    supervisor.start("if number in (3, 6): sign()\nif number < 8: sys.exit(75)\nsign()\norder()")
    supervisor.workers(9)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0
    assert "starts in a row" not in supervisor.output()


@pytest.mark.slow
def test_a_worker_run_until_idle_that_never_becomes_ready_is_given_up_too(supervisor: SupervisorProcess) -> None:
    supervisor.start("os.write(signs, b'\\n')\nos.kill(os.getpid(), 11)", once=True)
    assert supervisor.wait() == 71
    assert len(supervisor.workers(5)) == 5
    assert "5 starts in a row ended before the worker was ready" in supervisor.output()


# ── replacement after a number of tasks or an amount of memory ──

# The first worker reaches a limit; the others do not. Each writes the orders that it gets.
LIMITED = """
sign(60.0, 1, 100 if number == 0 else 0, 2_000_000_000 if number == 0 else 0)
order_got = order()
open(f'{__file__}.{number}.{order_got.decode()}', 'w').close()
if order_got == b'r': order_got = order() if os.path.exists(__file__ + '.wait') else b''
"""


def orders(supervisor: SupervisorProcess) -> list[str]:
    return sorted(path.name.removeprefix("worker.py.") for path in supervisor.folder.glob("worker.py.[0-9].*"))


@pytest.mark.parametrize(
    "limit, why",
    [({"max_tasks": 100}, "has run 100 tasks"), ({"max_memory": 1_000_000_000}, "uses 2 GB of memory")],
    ids=["tasks", "memory"],
)
def test_a_worker_that_reaches_a_limit_retires_when_its_replacement_is_ready(
    supervisor: SupervisorProcess, limit: dict[str, int], why: str
) -> None:
    hold = "if number == 1:\n    while not os.path.exists(__file__ + '.go'): time.sleep(0.01)\n"
    supervisor.start(hold + LIMITED, **limit)
    first, _second = supervisor.workers(2)
    supervisor.wait_for_output(f"worker process {first} {why}; its replacement starts")
    supervisor.rounds(5)
    assert psutil.pid_exists(first)
    assert orders(supervisor) == []  # the old one works until the new one is ready
    supervisor.script.with_name("worker.py.go").touch()
    supervisor.wait_for_output(f"worker process {first} ended with 0; it was replaced")
    assert orders(supervisor) == ["0.r"]
    assert len(supervisor.workers(2)) == 2
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0
    assert orders(supervisor) == ["0.r", "1.d"]


def test_a_stop_reaches_a_worker_that_retires(supervisor: SupervisorProcess) -> None:
    supervisor.script.with_name("worker.py.wait").touch()
    supervisor.start(LIMITED, max_tasks=100)
    until(lambda: orders(supervisor) == ["0.r"], "the order to retire")
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0


def test_a_replacement_that_fails_leaves_the_old_worker_at_work_and_is_tried_again(
    supervisor: SupervisorProcess,
) -> None:
    supervisor.start("if number in (1, 2): sys.exit(64)\n" + LIMITED, max_tasks=100)
    first = supervisor.workers(4)[0]
    supervisor.wait_for_output("ended with 64 before it was ready; the old process goes on")
    supervisor.wait_for_output(f"worker process {first} ended with 0; it was replaced")
    assert orders(supervisor) == ["0.r"]
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0


def test_a_worker_that_dies_while_its_replacement_starts_is_not_started_again(supervisor: SupervisorProcess) -> None:
    hold = "if number == 1:\n    while not os.path.exists(__file__ + '.go'): time.sleep(0.01)\n"
    supervisor.start(hold + LIMITED, max_tasks=100)
    first, _ = supervisor.workers(2)
    os.kill(first, signal.SIGKILL)
    supervisor.wait_for_output(f"worker process {first} was killed by SIGKILL; its replacement is starting")
    supervisor.script.with_name("worker.py.go").touch()
    supervisor.rounds(10)
    assert len(supervisor.workers(2)) == 2
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0


def test_workers_are_replaced_one_at_a_time(supervisor: SupervisorProcess) -> None:
    script = (
        "first = number < 3\nif number == 3:\n    while not os.path.exists(__file__ + '.go'): time.sleep(0.01)\n"
        + LIMITED.replace("number == 0", "first")
    )
    supervisor.start(script, processes=3, max_tasks=100)
    supervisor.workers(4)
    supervisor.rounds(10)
    assert len(supervisor.workers(4)) == 4
    supervisor.script.with_name("worker.py.go").touch()
    until(lambda: supervisor.output().count("it was replaced") == 3, "three replacements")
    supervisor.signal(signal.SIGTERM)
    assert supervisor.wait() == 0
