"""Task text in the output of commands: without control sequences and without secrets."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from onerow.engine.control import definitions
from onerow.engine.control.alerts import of_failure
from onerow.engine.output.masking import Masker
from onerow.engine.output.terminal import neutral_json
from onerow.ports import LogLine
from onerow.stores.sqlite import SqliteStore
from tests.cli.conftest import Run
from tests.samples import NOW, a_task

NASTY = "a\x1b]0;owned\x07b\x9b2Jc\u202ed\u2066e\u200ff\x7fg"
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
SECRET = "hunter2-hunter2-hunter2"


@pytest.fixture
def nasty(town: str) -> str:
    """Return the URL of a store in which every user-written text contains control characters."""
    store = SqliteStore(town.removeprefix("sqlite:///"))
    store.insert(
        [
            replace(
                a_task("nasty", title=NASTY, user_id=NASTY, parent_id=NASTY, payload={NASTY: NASTY}),
                error=NASTY,
                limit_key=NASTY,
                unique_key=NASTY,
            )
        ]
    )
    definitions.set_pause(store, "videos", "script", NASTY, NASTY)
    store.append_log([LogLine("nasty", NOW, "script", 1, "out", NASTY)])
    store.close()
    return town


@pytest.mark.parametrize(
    "words",
    [
        ["show", "nasty"], ["list", "title:owned"], ["why", "nasty"], ["logs", "nasty"], ["doctor"], ["counts"],
        ["watch", "--once"], ["failures"], ["workers"], ["signal", "nasty", "go"], ["finish", "nasty", "--note", NASTY],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_no_command_prints_control_or_direction_characters(
    run: Run, nasty: str, words: list[str], as_json: bool
) -> None:
    if as_json and words[0] == "watch":
        pytest.skip("a board has no JSON")
    result = run(*words, *(["--json"] if as_json else []), "--store", nasty)
    assert not UNSAFE.findall(result.output)


def test_json_keeps_the_value(run: Run, nasty: str) -> None:
    shown = json.loads(run("show", "nasty", "--json", "--store", nasty).stdout)
    assert shown["task"]["title"] == shown["task"]["parent_id"] == NASTY
    assert shown["task"]["payload"] == {NASTY: NASTY}
    assert json.loads(run("logs", "nasty", "--json", "--store", nasty).stdout)["text"] == NASTY
    document = json.dumps({"half": "\ud83c", "whole": "🎬\n"}, ensure_ascii=False, indent=1)
    assert json.loads(neutral_json(document)) == {"half": "\ud83c", "whole": "🎬\n"}
    neutral_json(document).encode()


def test_an_error_message_is_neutral(run: Run, nasty: str) -> None:
    result = run("show", f"no{NASTY}", "--store", nasty, code=64)
    assert not UNSAFE.findall(result.output)


APP = """
import logging, sys, threading
from onerow import Pipeline, Queue
from onerow.engine.events.events import TaskFailed
videos = Pipeline("videos", title="{topic}")
@videos.phase(retry=0)
def script(job):
    import os
    logging.getLogger("app").warning("uses %s", os.environ["MY_TOKEN"])
    try:
        raise ValueError(job["topic"])
    except ValueError:
        logging.getLogger("app").exception("as it was")
    thread = threading.Thread(target=lambda: print("thread", os.environ["MY_TOKEN"], file=sys.stderr))
    thread.start()
    thread.join()
    raise RuntimeError("it failed: " + job["topic"])
queue = Queue("sqlite:///tasks.db")
@queue.on(TaskFailed)
def hook(event):
    raise ValueError(event.task.title)
"""


def test_a_worker_prints_no_secret_and_no_control_character(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (tmp_path / "topic.json").write_text(json.dumps({"topic": f"{NASTY}\nforged {SECRET}"}), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEROW_")}
    environment["MY_TOKEN"] = SECRET

    def onerow(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "onerow", *words], cwd=tmp_path, env=environment, capture_output=True, text=True,
            timeout=900, check=True,
        )  # fmt: skip

    onerow("publish", "app")
    onerow("add", "videos", "--payload", "@topic.json", "--store", "sqlite:///tasks.db")
    said = onerow("worker", "app", "--until-idle", "--verbose").stderr
    assert "uses ***" in said
    assert "thread ***" in said
    assert "a hook for TaskFailed raised ValueError" in said
    assert SECRET not in said
    assert not UNSAFE.findall(said)
    (title,) = [line for line in said.splitlines() if "failed in script (" in line]
    assert "it failed: ab" in title
    assert "forged" in title, "a line feed in a title begins no new log line"


def test_an_alert_has_no_secret_and_its_sentence_is_neutral() -> None:
    task = replace(a_task("t", title=f"{NASTY} {SECRET}"), error=f"no {SECRET}\n{NASTY}")
    alert = of_failure(task, "now", Masker([SECRET]))
    assert SECRET not in f"{alert!r}"
    assert alert.error.startswith("no ***")
    assert not UNSAFE.findall(alert.text)
