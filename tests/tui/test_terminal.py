"""The monitor in a real terminal: tmux, signals, a dumb terminal."""

import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from conftest import start
from tests.servers.tmux import Tmux

_WORKER = r"\S+-\d+-[0-9a-f]{8}"
ONEROW = [sys.executable, "-m", "onerow"]


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[list[Tmux]]:
    found: list[Tmux] = []
    yield found
    for each in found:
        each.close()


def test_a_session_watches_a_worker_that_is_killed_and_its_tasks_resume(tmp_path: Path, terminals: list[Tmux]) -> None:
    terminal = start(lambda: Tmux([*ONEROW, "demo", "--monitor", "--fast"], tmp_path))
    terminals.append(terminal)
    terminal.until(lambda screen: "videos" in screen and "Board" in screen)
    terminal.keys("4")
    first = terminal.until(lambda screen: "alive" in screen and "video" in screen)
    workers = set(re.findall(_WORKER, first))
    assert workers
    # The demo kills this worker; another process takes its place.
    terminal.until(lambda screen: bool(set(re.findall(_WORKER, screen)) - workers))
    terminal.keys("2")
    terminal.until(lambda screen: "completed 6" in screen and "조수와 달" in screen)
    terminal.keys("/", "Wolken", "Enter")
    terminal.until(lambda screen: "Wolken" in screen and "Tides" not in screen)
    terminal.keys("Enter")
    terminal.until(lambda screen: "It was completed" in screen and "Connect" in screen)
    terminal.keys("q")
    said = terminal.until(lambda screen: "Next: " in screen)
    assert "kill -9" in said
    assert "6 of 6 tasks completed" in said


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_lost_connection_leaves_no_process_behind(
    town: str, tmp_path: Path, terminals: list[Tmux], number: int
) -> None:
    terminal = start(lambda: Tmux([*ONEROW, "monitor", "--store", town], tmp_path))
    terminals.append(terminal)
    terminal.until(lambda screen: "Wolken" in screen)
    process = psutil.Process(terminal.process)
    below = process.children(recursive=True)
    os.kill(process.pid, number)
    deadline = time.monotonic() + 60
    while not terminal.ended:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not any(each.is_running() for each in below)
    assert {path.name for path in tmp_path.iterdir()} <= {"town.db", "town.db-wal", "town.db-shm"}


def test_a_monitor_that_was_stopped_continues_and_restores_the_terminal(town: str, tmp_path: Path) -> None:
    ours, its = os.openpty()
    before = termios.tcgetattr(its)
    process = subprocess.Popen(
        [*ONEROW, "monitor", "--store", town], cwd=tmp_path, env=os.environ | {"TERM": "xterm"},
        stdin=its, stdout=its, stderr=its,
    )  # fmt: skip
    try:
        _read_until(ours, b"Wolken")
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGCONT)
        _read_until(ours, b"\x1b[?1049h")  # it takes the terminal again
        _read_until(ours, b"Wolken")
        os.write(ours, b"q")
        _read_until(ours, b"\x1b[?1049l")
        assert process.wait(900) == 0
        assert termios.tcgetattr(its) == before
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(its)


def _read_until(terminal: int, wanted: bytes) -> None:
    seen = b""
    while wanted not in seen:
        assert select.select([terminal], [], [], 900)[0]
        seen += os.read(terminal, 65_536)


def test_sixteen_colours_are_enough(town: str, tmp_path: Path, terminals: list[Tmux]) -> None:
    terminal = start(
        lambda: Tmux(
            [*ONEROW, "monitor", "--store", town], tmp_path, size=(80, 24), env={"TERM": "xterm", "COLORTERM": ""}
        )
    )
    terminals.append(terminal)
    terminal.until(lambda screen: "Wolken" in screen)
    coloured = terminal._run("capture-pane", "-p", "-e", "-t", "m")
    assert not re.search(r"\x1b\[[0-9;]*[34]8;", coloured)  # no palette, no true colours


@pytest.mark.parametrize("words,env", [(["--plain"], {}), ([], {"TERM": "dumb"})])
def test_plain_and_dumb_terminals_get_the_board_as_text(
    town: str, tmp_path: Path, words: list[str], env: dict[str, str]
) -> None:
    process = subprocess.Popen(
        [*ONEROW, "monitor", *words, "--store", town, "--interval", "0.2s"], cwd=tmp_path, env=os.environ | env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        shown = ""
        while shown.count("youtube") < 2:
            shown += process.stdout.readline()
        assert "\x1b" not in shown
    finally:
        process.terminate()
        process.wait(900)
        process.stdout.close()


def test_a_dumb_terminal_gets_whole_columns(town: str, tmp_path: Path, terminals: list[Tmux]) -> None:
    words = [*ONEROW, "watch", "--once", "--store", town]
    terminals.append(start(lambda: Tmux(words, tmp_path, size=(130, 24), env={"TERM": "dumb"})))
    assert "…" not in terminals[0].until(lambda screen: "youtube" in screen)


def test_the_board_as_text_refuses_a_query(town: str, tmp_path: Path) -> None:
    words = [*ONEROW, "monitor", "--plain", "--store", town, "status:failed"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 64
    assert "use: onerow list status:failed" in done.stderr
