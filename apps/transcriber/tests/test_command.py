"""How a worker runs main.py: arguments, folder, environment, log file. A small program in its place records them."""

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from apps.transcriber.tests.kit import GPT, home_at, log_of, work
from transcriber import add_job, open_queue

pytestmark = pytest.mark.xdist_group("transcriber, command")
URL = "https://host/a.mp3?x=1&y=2"
RECORDER = """
import json, os, pathlib, sys
print("a line of stdout: 조수")
print("a line of stderr", file=sys.stderr)
seen = {"argv": [sys.executable, *sys.argv], "cwd": os.getcwd(), "log": os.environ["OPEN_SCRIBE_TUI_LOG"]}
with open(pathlib.Path(__file__).with_suffix(".json"), "a") as file:
    print(json.dumps(seen), file=file)
pathlib.Path(os.environ["ONEROW_RESULT_FILE"]).write_text("{}")
"""


class Seen(NamedTuple):
    """What the program saw in each run, and the log of the first job in the store."""

    home: Path
    main: Path
    runs: list[dict[str, Any]]
    log: str


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A job with all flags, then one that names no engine, as a form or an INSERT may add it."""
    folder = tmp_path_factory.mktemp("command")
    main = folder / "main.py"
    main.write_text(RECORDER)
    flags: dict[str, Any] = {
        "timestamps": True,
        "summary": True,
        "translate": True,
        "srt": True,
        "video": True,
        "force": True,
    }
    with home_at(folder) as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr("transcriber.opening.MAIN", main)
        add_job(URL, task_id="1", engine=GPT, **flags)
        work()
        queue = open_queue()
        queue.add("transcribe", {"url": URL}, task_id="2")
        work()
        log = log_of(queue.get("1"))
        queue.close()
    runs = [json.loads(line) for line in main.with_suffix(".json").read_text().splitlines()]
    return Seen(home, main, runs, log)


@pytest.mark.contract("Runs `sys.executable main.py <url> --engine <engine>` plus the flags; cwd the project root.")
def test_main_py_is_run_with_url_engine_and_flags_in_the_project_s_root(seen: Seen) -> None:
    flags = ["--timestamps", "--summary", "--translate", "--srt", "--video", "--force"]
    assert seen.runs[0]["argv"] == [sys.executable, str(seen.main), URL, "--engine", GPT, *flags]
    assert seen.runs[0]["cwd"] == str(seen.home)


def test_a_job_without_engine_and_flags_is_run_with_its_url_alone(seen: Seen) -> None:
    assert seen.runs[1]["argv"] == [sys.executable, str(seen.main), URL]


@pytest.mark.contract(
    "stdout and stderr to `logs/job-<job_id>-<YYYYMMDD-HHMMSS>.log`, path also in OPEN_SCRIBE_TUI_LOG."
)
def test_its_output_is_in_a_log_file_whose_path_it_knows(seen: Seen) -> None:
    path = Path(seen.runs[0]["log"])
    assert path.parent == seen.home / "logs"
    assert re.fullmatch(r"job-1-\d{8}-\d{6}\.log", path.name)
    for text in ("a line of stdout: 조수", "a line of stderr"):
        assert text in path.read_text(encoding="utf-8")
        assert text in seen.log
