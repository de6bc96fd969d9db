"""P11: a stopped task leaves no process behind, even if the worker, the host process or a reaper is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from onerow.engine.processes import CannotStart, Child, Exit, ProcessHost
from onerow.engine.processes.host.tree import _HAS_CHILDREN_FILE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="whole trees can be ended on Linux only")

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
    """Wait up to 30 seconds for a condition and return its value."""
    deadline = time.monotonic() + 30
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
    """Starts Python programs under a process host, and records which processes were alive when an exit was reported."""

    def __init__(self, process_host: ProcessHost, folder: Path) -> None:
        self.process_host = process_host
        self.folder = folder
        self.exits: list[Exit] = []
        self.seen_alive: list[int] = []

    def start(self, program: str, **settings: Any) -> Child:
        usual: dict[str, Any] = {
            "cwd": self.folder,
            "stdin": None,
            "stdout": None,
            "stderr": 2,
            "on_exit": self._on_exit,
        }
        argv = [sys.executable, "-S", "-c", PRELUDE + program, PRELUDE]
        return self.process_host.start(argv, **usual | settings)

    def pid(self, name: str) -> int:
        return noted(self.folder, name)

    def _on_exit(self, exit: Exit) -> None:
        pids = [int(note.read_text()) for note in self.folder.iterdir() if not note.suffix]
        self.seen_alive += [pid for pid in pids if alive(pid)]
        self.exits.append(exit)


def ended(child: Child) -> Exit:
    exit = child.wait(30)
    assert exit is not None, "the child is still there"
    return exit


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    (folder := tmp_path / "notes").mkdir()
    with ProcessHost() as process_host:
        yield Runs(process_host, folder)
    left = [pid for note in folder.iterdir() if not note.suffix and alive(pid := int(note.read_text()))]
    assert not left, "processes survived the process host"


def host_processes_of(pid: int) -> list[psutil.Process]:
    return [one for one in psutil.Process(pid).children() if one.name() == "onerow-keeper"]


def reapers_of(pid: int) -> list[psutil.Process]:
    return [
        one
        for process_host in host_processes_of(pid)
        for one in process_host.children()
        if one.name() == "onerow-warden"
    ]


# Exits


def test_an_exit_tells_the_code_of_the_child(runs: Runs) -> None:
    exit = ended(runs.start("sys.exit(7)"))
    assert (exit.code, exit.signal, exit.stopped, exit.left) == (7, None, False, 0)
    assert exit.max_rss > 1_000_000


def test_an_exit_tells_the_signal_that_ended_the_child(runs: Runs) -> None:
    exit = ended(runs.start("os.kill(os.getpid(), signal.SIGSEGV)"))
    assert (exit.code, exit.signal, exit.stopped) == (None, signal.SIGSEGV, False)


def test_the_callback_during_a_start_is_called_once_and_its_error_ends_the_child(runs: Runs) -> None:
    done: list[str] = []
    assert ended(runs.start("", while_starting=lambda: done.append("x"))).code == 0
    assert done == ["x"]

    def failing() -> None:
        raise ValueError("while starting")

    with pytest.raises(ValueError, match="while starting"):
        runs.start("note('child'); idle()", while_starting=failing)
    assert ended(runs.start("")).code == 0
    runs.process_host.close()
    assert not (runs.folder / "child").exists() or not alive(noted(runs.folder, "child"))


def test_every_exit_is_reported_once(runs: Runs) -> None:
    children = [runs.start(f"sys.exit({code})") for code in range(5)]
    assert [ended(child).code for child in children] == [0, 1, 2, 3, 4]
    until(lambda: len(runs.exits) == 5, "five callbacks")
    assert sorted(exit.code or 0 for exit in runs.exits) == [0, 1, 2, 3, 4]


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


def test_an_error_in_one_callback_does_not_affect_the_others(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", shown.append)
    ended(runs.start("", on_exit=lambda _: 1 / 0))
    ended(runs.start(""))
    until(lambda: runs.exits, "the second callback")
    assert [args.exc_type for args in shown] == [ZeroDivisionError]


# Deadlines


def test_a_child_whose_deadline_passes_is_stopped_with_its_tree(runs: Runs) -> None:
    tree = TREES["deaf_to_term"]
    child = runs.start("ignore_term()\n" + tree + "\nidle()", deadline=(time.monotonic() + 1, 0.1))
    runs.pid("grandchild")
    exit = ended(child)
    until(lambda: runs.exits, "the callback")
    assert (exit.signal, exit.stopped) == (signal.SIGKILL, True)
    assert runs.seen_alive == []


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


# Trees


@every_tree
def test_a_stop_ends_a_grandchild_that_is(runs: Runs, tree: str) -> None:
    child = runs.start(tree + "\nidle()")
    assert alive(runs.pid("grandchild"))
    child.stop(0.3)
    exit = ended(child)
    until(lambda: runs.exits, "the callback")
    assert exit.stopped
    assert runs.seen_alive == []


@every_tree
def test_the_end_of_a_child_ends_a_grandchild_that_is(runs: Runs, tree: str) -> None:
    exit = ended(runs.start(tree + "\nnoted('grandchild'); sys.exit(3)"))
    until(lambda: runs.exits, "the callback")
    assert (exit.code, exit.stopped) == (3, False)
    assert runs.seen_alive == []


def test_leftover_processes_of_a_child_get_a_moment_to_finish(runs: Runs) -> None:
    ended(runs.start("fork(lambda: (time.sleep(0.02), note('finished')))"))
    assert (runs.folder / "finished").exists()


def test_a_stop_ends_a_chain_in_which_each_process_forks_the_next_and_exits(runs: Runs) -> None:
    # The chain lasts for a minute, longer than the test waits: only the stop can end it in time. A look at the process
    # table would miss a chain this fast, so each process of it adds a byte to a file.
    child = runs.start("""
def chain():
    last = time.monotonic() + 60
    for number in range(30_000):
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
        assert process.wait(30) == 0


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
    until(lambda: runs.exits, "the callback")
    assert runs.seen_alive == []


def test_a_stop_of_some_of_twenty_children_ends_only_their_own_trees(runs: Runs) -> None:
    tree = TREES["daemonised"].replace("grandchild", "lambda: (note(sys.argv[2]), idle())")
    argv = [sys.executable, "-S", "-c", PRELUDE + tree + "\nidle()", PRELUDE]
    settings: dict[str, Any] = {"cwd": runs.folder, "stdin": None, "stdout": None, "stderr": 2}
    children = [
        runs.process_host.start([*argv, f"n{number}"], on_exit=lambda _: None, **settings) for number in range(20)
    ]
    pids = [runs.pid(f"n{number}") for number in range(20)]
    for child in children[::2]:
        child.stop(0.2)
    for child in children[::2]:
        ended(child)
    assert [alive(pid) for pid in pids] == [False, True] * 10
    assert all(child.wait(0) is None for child in children[1::2])


# Killed workers, host processes and reapers


WORKER = (
    "import os, sys, time\nfrom pathlib import Path\nfrom onerow.engine.processes import ProcessHost\n"
    "process_host = ProcessHost()\n"
    "def start(program):\n"
    "    process_host.start([sys.executable, '-S', '-c', sys.argv[1] + program, sys.argv[1]], cwd=Path(sys.argv[2]),\n"
    "                       stdin=None, stdout=None, stderr=2, on_exit=lambda exit: None)\n"
)


def start_worker(folder: Path, program: str) -> "subprocess.Popen[bytes]":
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", WORKER + program, PRELUDE, str(folder)], env=env)


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
            lambda: [one for one in psutil.Process(worker.pid).children() if one.name() != "onerow-keeper"], "the fork"
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
    until(lambda: runs.exits, "the callback")
    assert (exit.code, exit.signal, exit.stopped) == (None, signal.SIGKILL, False)
    assert runs.seen_alive == []
    assert ended(runs.start("sys.exit(4)")).code == 4


def test_an_idle_reaper_that_is_killed_is_replaced(runs: Runs) -> None:
    ended(runs.start(""))
    [reaper] = reapers_of(os.getpid())
    reaper.kill()
    until(lambda: not reapers_of(os.getpid()), "the reaper to end")
    assert ended(runs.start("sys.exit(4)")).code == 4
    until(lambda: len(runs.exits) == 2, "both callbacks")


def test_a_child_whose_host_process_and_reaper_are_killed_is_ended_by_the_worker(runs: Runs) -> None:
    children = [runs.start(TREES["daemonised"] + "\nidle()"), runs.start("idle()")]
    runs.pid("grandchild")
    doomed = [*host_processes_of(os.getpid()), *psutil.Process(children[0].pid).parents()[:1]]
    for one in doomed:
        one.suspend()
    for one in doomed:
        one.kill()
    assert ended(children[0]).signal == signal.SIGKILL
    until(lambda: runs.exits, "the callback")
    assert runs.seen_alive == []
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
        next_process_host.start(["/bin/true"], stdin=None, stdout=None, stderr=None, on_exit=lambda _: None)
        until(lambda: not alive(orphan), "the orphan to end")
    assert alive(mine.pid)


def test_a_close_ends_every_child_and_reports_it(tmp_path: Path) -> None:
    process_host = ProcessHost()
    runs = Runs(process_host, tmp_path)
    for _ in range(3):
        runs.start("ignore_term(); idle()")
    process_host.close()
    assert [exit.stopped for exit in runs.exits] == [True] * 3
    assert not host_processes_of(os.getpid())
    process_host.close()
    with pytest.raises(CannotStart, match="closed"):
        runs.start("")


# Starts


def start_failing(runs: Runs, *argv: str, **settings: Any) -> str:
    streams: dict[str, Any] = {"stdin": None, "stdout": None, "stderr": None}
    with pytest.raises(CannotStart) as failed:
        runs.process_host.start(argv, on_exit=runs.exits.append, **streams | settings)
    assert failed.value.program == (argv[0] if argv else "")
    assert ended(runs.start("sys.exit(4)")).code == 4, "a failed start must not disturb the next"
    return str(failed.value)


@pytest.mark.parametrize("settings", [{}, {"nice": 1}], ids=["plainly", "with_settings"])
def test_a_start_that_fails_names_the_program_and_the_reason(runs: Runs, settings: dict[str, Any]) -> None:
    (script := runs.folder / "script.txt").write_text("not a program")
    assert "'no-such-program': there is no such program on the PATH" in start_failing(
        runs, "no-such-program", **settings
    )
    assert "'/no/such': no such file" in start_failing(runs, "/no/such", **settings)
    assert "permission denied" in start_failing(runs, str(script), **settings)
    script.chmod(0o755)
    assert "exec format error" in start_failing(runs, str(script), **settings)
    assert "'/no/folder' cannot be entered" in start_failing(runs, "true", cwd=Path("/no/folder"), **settings)
    assert "argument list too long" in start_failing(runs, "true", "x" * 4_000_000, **settings)
    script.unlink()


def test_an_invalid_start_request_is_refused(runs: Runs) -> None:
    assert "empty" in start_failing(runs)
    assert "NUL" in start_failing(runs, "true", "a\0b")
    assert "NUL" in start_failing(runs, "true", env={"A": "a\0b"})
    assert "'='" in start_failing(runs, "true", env={"A=B": "c"})
    assert "descriptor" in start_failing(runs, "true", stdout=987)
    assert "descriptors" in start_failing(runs, "true", pass_fds=range(3, 300))


def test_a_host_process_that_cannot_be_started_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with (
        ProcessHost() as process_host,
        pytest.raises(CannotStart, match=r"'true': there is no keeper .*/no/such/python"),
    ):
        process_host.start(["true"], stdin=None, stdout=None, stderr=None, on_exit=lambda _: None)


def output_of(runs: Runs, program: str, **settings: Any) -> str:
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8") as output:
        try:
            child = runs.start(program, stdout=writing, **settings)
        finally:
            os.close(writing)
        text = output.read()
    assert ended(child).code == 0
    return text.strip()


def test_a_child_gets_its_folder_variables_and_arguments_unchanged(runs: Runs) -> None:
    (folder := runs.folder / "폴더 🌊.d").mkdir()
    odd = os.fsdecode(b"\xff\xfe")
    text = output_of(
        runs,
        "print(os.getcwd(), os.environ['WORD'], os.fsencode(os.environ['ODD']), 'ONEROW_CHILD' in os.environ)",
        cwd=folder,
        env={"WORD": "조수\nand = tides", "ODD": odd, "PYTHONUTF8": "1"},
    )
    assert text == f"{folder} 조수\nand = tides b'\\xff\\xfe' True"
    folder.rmdir()


def test_a_child_inherits_the_current_environment(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("ebb", "flow"):
        monkeypatch.setenv("TIDE", word)
        assert output_of(runs, "print(os.environ['TIDE'])") == word


@pytest.mark.parametrize("settings", [{}, {"nice": 3}], ids=["plainly", "with_settings"])
def test_a_child_has_only_the_descriptors_it_was_given(runs: Runs, settings: dict[str, Any]) -> None:
    given = os.open("/dev/zero", os.O_RDONLY)
    text = output_of(
        runs,
        "print({int(fd): os.readlink('/proc/self/fd/' + fd) for fd in os.listdir('/proc/self/fd') if int(fd) < 900 "
        "and os.path.exists('/proc/self/fd/' + fd)})",
        pass_fds=[given],
        stderr=None,
        **settings,
    )
    os.close(given)
    found = eval(text)
    assert found.pop(given) == "/dev/zero"
    assert found.pop(1).startswith("pipe:")
    assert found == {0: "/dev/null", 2: "/dev/null"}


def test_passed_descriptors_keep_their_numbers(runs: Runs) -> None:
    pipes = [os.pipe() for _ in range(12)]
    for _, writing in pipes:
        os.write(writing, str(writing).encode())
        os.close(writing)
    program = f"print([(fd, os.read(fd, 9)) for fd in {[reading for reading, _ in pipes]}])"
    text = output_of(runs, program, pass_fds=[reading for reading, _ in pipes])
    for reading, _ in pipes:
        os.close(reading)
    assert text == str([(reading, str(writing).encode()) for reading, writing in pipes])


def test_a_child_has_default_signals_and_no_terminal(runs: Runs) -> None:
    program = "print([s.name for s in signal.valid_signals() - {9, 19} if isinstance(s, signal.Signals) and "
    program += "signal.getsignal(s) == signal.SIG_IGN], signal.pthread_sigmask(0, []), os.getpid() == os.getpgid(0))"
    # Python itself ignores these two.
    assert output_of(runs, program) == "['SIGPIPE', 'SIGXFSZ'] set() True"


def test_umask_and_niceness_are_set_for_the_child_alone(runs: Runs) -> None:
    program = "print(oct(os.umask(0)), os.nice(0))"
    plain = output_of(runs, program)
    assert output_of(runs, program, umask=0o027) == f"0o27 {os.nice(0)}"
    assert output_of(runs, program, umask=0, nice=5) == f"0o0 {os.nice(0) + 5}"
    assert output_of(runs, program) == plain


def test_memory_and_processor_time_have_limits(runs: Runs) -> None:
    greedy = runs.start("bytearray(400_000_000)", memory=200_000_000, stderr=None)
    busy = runs.start("while True: pass", cpu_seconds=1)
    assert ended(greedy).code == 1
    assert ended(busy).signal == signal.SIGXCPU


def test_a_flood_of_output_reaches_a_slow_reader(runs: Runs) -> None:
    reading, writing = os.pipe()
    child = runs.start("for _ in range(500): os.write(1, b'x' * 20_000)", stdout=writing)
    os.close(writing)
    assert child.wait(0.05) is None
    with open(reading, "rb") as output:
        assert len(output.read()) == 10_000_000
    assert ended(child).code == 0


def test_many_threads_may_start_and_stop(runs: Runs) -> None:
    def work() -> None:
        for _ in range(8):
            child = runs.start("idle()")
            child.stop(0)
            ended(child)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: len(runs.exits) == 48, "all callbacks")
    assert all(exit.stopped for exit in runs.exits)
