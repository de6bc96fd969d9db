"""Output in a pseudo-terminal: colours, the live board, the demo."""

import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import closing
from fcntl import ioctl
from pathlib import Path

import pytest
from rich.console import Console

from onerow import Queue, StoreError
from onerow.cli.start import demo

PATIENCE = 900.0


def _with_control_c() -> None:
    """Undo an ignored SIGINT, which a shell sets for programs in the background and every child inherits."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A command in a pseudo-terminal of 120 by 40."""

    def __init__(self, words: list[str], folder: Path) -> None:
        ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "onerow", *words], cwd=folder, env=environment, stdin=theirs, stdout=theirs,
            stderr=theirs, start_new_session=True, preexec_fn=_with_control_c,
        )  # fmt: skip
        os.close(theirs)
        self._ours = ours
        self.seen = ""

    def read_until(self, done: Callable[[str], bool]) -> str:
        deadline = time.monotonic() + PATIENCE
        os.set_blocking(self._ours, False)
        while time.monotonic() < deadline:
            try:
                self.seen += os.read(self._ours, 65536).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:  # Linux: the terminal's other end is closed
                break
            if done(self.seen):
                break
        return self.seen

    def close(self) -> int:
        self.process.wait(PATIENCE)
        os.close(self._ours)
        return self.process.returncode


def test_a_terminal_gets_colours_and_tables_that_fit(town: str, tmp_path: Path) -> None:
    terminal = Terminal(["list", "--store", town], tmp_path)
    text = terminal.read_until(lambda seen: False)
    assert terminal.close() == 0
    assert "\x1b[1;31mfailed" in text
    assert "\x1b[31mthing" not in text
    assert all(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= 120 for line in text.splitlines())


def test_watch_redraws_the_board_until_it_is_interrupted(town: str, tmp_path: Path) -> None:
    terminal = Terminal(["watch", "--store", town, "--interval", "0.2s"], tmp_path)
    terminal.read_until(lambda seen: seen.count("youtube") >= 2)
    terminal.process.send_signal(signal.SIGINT)
    text = terminal.read_until(lambda seen: False)
    assert terminal.close() == 130
    assert "image (images.ready)" in text
    assert "■ running   □ free slot" in text
    assert "Traceback" not in text


def test_a_final_operation_on_a_query_is_confirmed_in_a_terminal(town: str, tmp_path: Path) -> None:
    terminal = Terminal(["finish", "--where", "user:u1", "--store", town], tmp_path)
    terminal.read_until(lambda seen: "finish 2 tasks? [y/N]" in seen)
    os.write(terminal._ours, b"n\n")
    terminal.read_until(lambda seen: False)
    assert terminal.close() == 1


def test_more_than_five_tasks_are_confirmed_in_a_terminal(town: str, tmp_path: Path) -> None:
    terminal = Terminal(["cancel", "--where", "status:waiting,processing,failed", "--store", town], tmp_path)
    terminal.read_until(lambda seen: "6 tasks? [y/N]" in seen)
    os.write(terminal._ours, b"n\n")
    text = terminal.read_until(lambda seen: False)
    assert terminal.close() == 1
    assert "Aborted" in text


@pytest.mark.faults
def test_the_demo_in_a_terminal_shows_a_resumed_task(tmp_path: Path) -> None:
    terminal = Terminal(["demo", "--fast", "--keep"], tmp_path)
    text = terminal.read_until(lambda seen: False)
    assert terminal.close() == 0, text[-3_000:]
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "kill -9" in plain
    assert "resumes in a new worker: video at" in plain
    assert "6 of 6 tasks completed: 30 phases, each recorded once" in plain
    database = re.search(r"--store sqlite:///(\S+)", plain)
    assert database is not None
    assert Path(database[1]).exists()
    assert "조수와 달" in plain


@pytest.mark.faults
def test_the_demo_without_a_terminal_prints_its_messages_and_deletes_its_files(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-m", "onerow", "demo", "--fast"], env=environment, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    assert "\x1b" not in result.stdout
    assert re.search(r"the row of “.*” still says: video at \d+%; done: script, images", result.stdout)
    assert "its supervisor starts a new worker; until then the tasks wait in their rows" in result.stdout
    assert re.search(r"“.*” resumes in a new worker: video at \d+%, attempt 2", result.stdout)
    assert re.search(r"“.*” failed in \w+ \(.+\); it is tried again in a second", result.stdout)
    assert "none lost, no completed phase run again" in result.stdout
    assert not list(tmp_path.iterdir())


def test_a_demo_whose_worker_does_nothing_ends_with_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_GIVE_UP_AFTER", 0.0)
    log = tmp_path / "worker.log"
    log.write_text("store unreachable\n", encoding="utf-8")
    console = Console(record=True, file=io.StringIO(), width=120)
    with closing(Queue(f"sqlite:///{tmp_path}/demo.db")) as queue:
        run = demo.Demo(queue, console, log)
        assert run.look()  # the first look sees the rows, the second no change of them
        with pytest.raises(StoreError, match="no task has changed"):
            run.look()
    shown = console.export_text()
    assert "“Tides”: waiting in script, attempt 0" in shown
    assert "store unreachable" in shown
