"""The command `transcriber`: what it says to a person, with right and wrong input."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from onerow import Queue
from transcriber import add_job
from transcriber.cli import main

Run = Callable[..., Result]


@pytest.fixture
def run(home: Path) -> Iterator[Run]:
    before = os.umask(0o022)
    yield lambda *words: CliRunner().invoke(main, ["--home", str(home), *words])
    os.umask(before)


def test_a_job_is_added_with_the_path_of_its_file(
    run: Run, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("조수 와 달.wav", "-x.wav"):
        (tmp_path / name).touch()
        added = run("add", "--srt", "--priority", "-5", "--", name)
        assert added.exit_code == 0, added.output
        task = queue.get(added.output.strip())
        assert (task.payload["url"], task.payload["srt"], task.priority) == (str(tmp_path / name), True, -5)


@pytest.mark.parametrize(
    "words, said",
    [
        (["missing.wav"], "there is no file"),
        (["."], "is a folder, not a file"),
        ([""], "url must be printable"),
        (["ftp://host/a.mp3"], "neither an http(s) URL nor the absolute path"),
        (["https://host/a.mp3", "--engine", "-x"], "not the name of an engine"),
        (["https://host/a.mp3", "--at", "tomorrow"], "--at: 'tomorrow' is not a time: write it like"),
        (["https://host/a.mp3", "--id", "one"], "job one exists already and is queued: choose another --id"),
    ],
)
def test_wrong_input_is_one_line_and_adds_nothing(run: Run, queue: Queue, words: list[str], said: str) -> None:
    add_job("/a/one.wav", task_id="one")
    refused = run("add", *words)
    assert refused.exit_code == 64
    assert refused.output.startswith("Error: ")
    assert said in refused.output
    assert refused.output.count("\n") == 1
    assert [task.task_id for task in queue.select()] == ["one"]


def test_a_file_that_will_be_there_later_can_be_scheduled(run: Run, queue: Queue) -> None:
    added = run("add", "/not/yet.wav", "--at", "+10m")
    assert queue.get(added.output.strip()).run_at > queue.store.now()


def test_the_list_has_the_transcriber_s_words_and_short_lines(run: Run, queue: Queue) -> None:
    nothing = run("list", "failed")
    assert nothing.exit_code == 0
    assert nothing.output == "no failed jobs; add one with: transcriber add FILE\n"
    add_job("/a/b.wav", task_id="one", title="조수와 달" * 100)
    add_job("/a/c.wav", task_id="two")
    queue.fail("two", "no such thing")
    lines = run("list").output.splitlines()
    assert lines[0] == "failed     two  c.wav  (no such thing)"
    assert lines[1].startswith("queued     one  조수와 달조수와 달")
    assert len(lines[1]) < 130
    assert run("list", "failed").output.splitlines() == lines[:1]


def test_any_command_of_onerow_finds_a_home_with_signs_of_urls_in_its_name(tmp_path: Path) -> None:
    transcriber = [sys.executable, "-m", "transcriber", "--home", str(tmp_path / "a%20b #1?")]
    subprocess.run([*transcriber, "add", "/a.wav", "--id", "one", "--at", "+1h"], check=True)
    shown = subprocess.run([*transcriber, "queue", "show", "one"], capture_output=True, text=True)
    assert (shown.returncode, "a.wav" in shown.stdout) == (0, True), shown.stderr


def test_a_folder_that_can_t_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    before = os.umask(0o022)
    refused = CliRunner().invoke(main, ["--home", str(tmp_path / "file" / "home"), "list"])
    os.umask(before)
    assert refused.exit_code == 64
    reason = f"the folder {tmp_path}/file/home/queue can't be made: Not a directory"
    assert refused.output == f"Error: TRANSCRIBER_HOME: {reason}\n"


def test_the_monitor_is_not_drawn_into_a_pipe(run: Run, queue: Queue) -> None:
    refused = run("monitor")
    assert refused.exit_code == 64
    assert refused.output == "Error: the monitor needs a terminal that moves its cursor: use: transcriber list\n"


def test_only_the_monitor_loads_its_screens() -> None:
    code = "import sys, transcriber.cli; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
