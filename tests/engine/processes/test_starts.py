"""What a child is given, and why one cannot be started."""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from onerow.engine.processes import CannotStart, Exit, ProcessHost, Program
from tests.engine.processes.kit import Runs, ended, linux_only

pytestmark = linux_only


def start_failing(runs: Runs, *argv: str, **settings: Any) -> str:
    with pytest.raises(CannotStart) as failed:
        runs.process_host.start(Program(argv=argv, **settings))
    assert failed.value.program == (argv[0] if argv else "")
    assert ended(runs.start("sys.exit(4)")).code == 4, "a failed start must not disturb the next"
    return str(failed.value)


def test_a_start_that_fails_names_the_program_and_the_reason(runs: Runs) -> None:
    (script := runs.folder / "script.txt").write_text("not a program")
    assert "'no-such-program': there is no such program on the PATH" in start_failing(runs, "no-such-program")
    assert "'/no/such': no such file" in start_failing(runs, "/no/such")
    assert "permission denied" in start_failing(runs, str(script))
    script.chmod(0o755)
    assert "exec format error" in start_failing(runs, str(script))
    assert "'/no/folder' cannot be entered" in start_failing(runs, "true", cwd=Path("/no/folder"))
    assert "argument list too long" in start_failing(runs, "true", "x" * 4_000_000)
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
        pytest.raises(CannotStart, match=r"'true': its host process cannot start .*/no/such/python"),
    ):
        process_host.start(Program(argv=["true"]))


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


def test_a_child_has_only_the_descriptors_it_was_given(runs: Runs) -> None:
    given = os.open("/dev/zero", os.O_RDONLY)
    text = output_of(
        runs,
        "print({int(fd): os.readlink('/proc/self/fd/' + fd) for fd in os.listdir('/proc/self/fd') if int(fd) < 900 "
        "and os.path.exists('/proc/self/fd/' + fd)})",
        pass_fds=[given],
        stderr=None,
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


def test_a_flood_of_output_reaches_a_slow_reader(runs: Runs) -> None:
    reading, writing = os.pipe()
    child = runs.start("for _ in range(500): os.write(1, b'x' * 20_000)", stdout=writing)
    os.close(writing)
    assert child.wait(0.05) is None
    with open(reading, "rb") as output:
        assert len(output.read()) == 10_000_000
    assert ended(child).code == 0


def test_many_threads_may_start_and_stop(runs: Runs) -> None:
    exits: list[Exit] = []

    def work() -> None:
        for _ in range(8):
            child = runs.start("idle()")
            child.stop(0)
            exits.append(ended(child))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [exit.stopped for exit in exits] == [True] * 48
