"""The command line: add videos, upload pictures, list, and run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from apps.video_studio.tests.kit import at, ended, picture, works
from onerow import Queue
from video_studio.cli import main


def studio(*words: str) -> Result:
    return CliRunner().invoke(main, words, catch_exceptions=False)


def test_a_video_is_added_listed_counted_and_cancelled(queue: Queue) -> None:
    assert studio("add", "조수와 달", "--at", "+1h", "--id", "t1", "--priority", "-5").output == "t1\n"
    task = queue.get("t1")
    assert (task.title, task.priority, task.user_id) == ("조수와 달", -5, "studio")
    assert "t1  조수와 달" in studio("list", "scheduled").output
    assert studio("list").output.startswith("scheduled (1)")
    assert studio("counts").output.splitlines()[0].split() == ["scheduled", "1"]
    assert studio("set", "t1", "cancelled").output == "t1: cancelled at schedule\n"
    refused = studio("set", "t1", "waiting")
    assert refused.exit_code == 1
    assert "cancelled is final" in refused.output


@pytest.mark.parametrize(
    "words, says",
    [
        (["add", "tides", "--at", "2030-01-01T09:00:00"], "has no time zone"),
        (["add", "tides", "--at", "tomorrow"], "is not a time"),
        (["add", "tides", "--id", "../up"], "can't name a file"),
        (["add", " "], "a topic is text"),
        (["list", "nothing"], "'scheduled', 'script'"),
        (["set", "t1", "processing"], "'waiting', 'completed'"),
        (["upload", "t1", __file__], "no task 't1'"),
    ],
)
def test_what_can_not_be_done_is_a_line_that_says_why(queue: Queue, words: list[str], says: str) -> None:
    answer = studio(*words)
    assert answer.exit_code != 0
    assert says in answer.output
    assert "Traceback" not in answer.output


def test_every_command_has_a_help_text() -> None:
    overview = studio("--help").output
    for name, command in main.commands.items():
        assert name in overview
        assert command.help
    assert "--draw" in studio("add", "--help").output


def test_run_serves_watches_the_upload_folder_and_stops_when_asked(queue: Queue, home: Path) -> None:
    studio("add", "tides", "--id", "t1")
    argv = [sys.executable, "-m", "video_studio", "run", "--interval", "200ms", "--grace", "1s"]
    with works(home), (home / "run.log").open("ab") as output:
        serving = subprocess.Popen(argv, stdout=output, stderr=output)
        at("t1", "image", "waiting")
        folder = home / "uploads" / "t1"
        folder.mkdir(parents=True)
        picture(folder / "01.png")
        (folder / "READY").touch()
        assert ended("t1").status == "completed"
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(900) == 0, (home / "run.log").read_text()


def test_make_goes_from_a_topic_to_a_file_in_one_command(home: Path) -> None:
    argv = [sys.executable, "-m", "video_studio", "make", "--topic", "구름 ☁"]
    began = time.monotonic()
    with works(home):
        made = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False, env=os.environ)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "video     done" in made.stdout
    where = made.stdout.splitlines()[-1].split("s  ", 1)[1]
    assert Path(where).stat().st_size > 1000
    assert Path(where).is_relative_to(home / "published")
    assert time.monotonic() - began < 90


def test_queue_passes_on_to_onerow(queue: Queue, home: Path) -> None:
    studio("add", "tides", "--id", "t1", "--at", "+1h")
    argv = [sys.executable, "-m", "video_studio", "queue", "list", "--json"]
    found = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=True)
    assert '"t1"' in found.stdout
