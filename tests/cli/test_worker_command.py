"""`onerow worker`: its first lines, --until-idle, --reload, its statistics and its stacks."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from onerow.cli.start.init import FILES

PATIENCE = 900.0


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("ONEROW_")}


def onerow(folder: Path, *words: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "onerow", *words], cwd=folder, env=environment(), capture_output=True, text=True,
        timeout=PATIENCE, check=True,
    ).stdout  # fmt: skip


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_drained_worker_leaves_statistics_and_no_registration(project: Path) -> None:
    onerow(project, "publish", "app")
    for name in ("Ann", "Bob", "조수"):
        onerow(project, "add", "greetings", f"name={name}")
    onerow(project, "worker", "app", "--until-idle")
    (compose, deliver, translate) = json.loads(onerow(project, "stats", "--json"))
    assert [phase["done"] for phase in (compose, deliver, translate)] == [3, 3, 3]
    assert json.loads(onerow(project, "workers", "--json")) == []
    overview = json.loads(onerow(project, "counts", "--json"))["overview"]
    assert (overview["completed"], overview["waiting"], overview["per_minute"] > 0) == (3, 0, True)


def test_botocore_is_quiet_about_where_it_found_credentials(project: Path) -> None:
    app = project / "app.py"
    lines = 'import logging\nfor each in ("botocore.credentials", "mine"):\n    logging.getLogger(each).info("by %s", each)\n'
    app.write_text(lines + app.read_text(encoding="utf-8"), encoding="utf-8")
    said = subprocess.run(
        [sys.executable, "-m", "onerow", "worker", "app", "--until-idle"], cwd=project, env=environment(),
        capture_output=True, text=True, timeout=PATIENCE, check=True,
    ).stderr  # fmt: skip
    assert "by mine" in said, "the app's own lines are shown"
    assert "by botocore" not in said


def test_publish_reports_tasks_at_a_phase_that_the_new_code_lacks(project: Path) -> None:
    app = project / "app.py"
    text = app.read_text(encoding="utf-8")
    onerow(project, "publish", "app")
    onerow(project, "add", "greetings", "name=Ann")
    app.write_text(text.replace("compose", "write"), encoding="utf-8")
    said = [
        subprocess.run(
            [sys.executable, "-m", "onerow", "publish", "app"], cwd=project, env=environment(), capture_output=True,
            text=True, timeout=PATIENCE, check=True,
        ).stderr
        for _ in range(2)
    ]  # fmt: skip
    assert said[0] == (
        "1 task waits at greetings.compose, which this code does not have: put renamed_from='compose' on the phase that "
        "replaces it, or start a worker with the old code\n"
    )
    assert said[1] == "", "once, by the publication that changed the definition"


def test_a_worker_restarts_when_a_source_file_changes(project: Path) -> None:
    log = project / "worker.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "onerow", "worker", "app", "--reload"], cwd=project, env=environment(), stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        until(lambda: log.read_text().count("serves greetings") == 1)
        first = log.read_text().splitlines()
        assert first[0] == f"store     sqlite:///{project}/tasks.db (named by {project}/onerow.toml)"
        assert first[1] == "pipeline  greetings: compose → translate → deliver"
        app = project / "app.py"
        app.write_text(app.read_text(encoding="utf-8").replace("Hello, ", "Goodbye, "), encoding="utf-8")
        until(lambda: log.read_text().count("serves greetings") == 2)
        assert "onerow: app.py changed, restarting workers" in log.read_text()
        good = app.read_text(encoding="utf-8")
        app.write_text(good + "\nprint((1", encoding="utf-8")
        waits = "the worker starts again when a file changes"
        until(lambda: waits in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        app.write_text(good, encoding="utf-8")
        until(lambda: log.read_text().count("serves greetings") == 3)
        task_id = onerow(project, "add", "greetings", "name=Ann").strip()
        until(lambda: '"status": "completed"' in onerow(project, "show", task_id, "--json"))
        assert "GOODBYE, ANN!" in onerow(project, "logs", task_id)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_sigusr1_prints_the_stacks_of_a_worker_and_its_work_goes_on(project: Path) -> None:
    log = project / "worker.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "onerow", "worker", "app"], cwd=project, env=environment(), stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        until(lambda: "serves greetings" in log.read_text())
        (worker,) = json.loads(onerow(project, "workers", "--json"))
        os.kill(worker["pid"], signal.SIGUSR1)
        until(lambda: "Current thread" in log.read_text())
        assert "run_round" in log.read_text() or "_rest" in log.read_text()
        task_id = onerow(project, "add", "greetings", "name=Ann").strip()
        until(lambda: '"status": "completed"' in onerow(project, "show", task_id, "--json"))
        assert "another starts" not in log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_after_a_reload_isolated_handlers_run_the_new_code(project: Path) -> None:
    app = project / "app.py"
    text = app.read_text(encoding="utf-8")
    app.write_text(
        text.replace("@greetings.phase\ndef compose", '@greetings.phase(isolate="process")\ndef compose'),
        encoding="utf-8",
    )
    onerow(project, "publish", "app")
    log = project / "log.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "onerow", "worker", "app", "--reload"], cwd=project, env=environment(), stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        until(lambda: log.read_text().count("serves greetings") == 1)
        for greeting in ("HELLO", "GOODBYE"):
            task_id = onerow(project, "add", "greetings", "name=Ann").strip()
            until(lambda task_id=task_id: '"status": "completed"' in onerow(project, "show", task_id, "--json"))  # type: ignore[misc]
            assert f"{greeting}, ANN!" in onerow(project, "logs", task_id)
            app.write_text(app.read_text(encoding="utf-8").replace("Hello, ", "Goodbye, "), encoding="utf-8")
            until(lambda: log.read_text().count("serves greetings") == 2)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_reload_without_watchfiles_says_what_to_install(project: Path) -> None:
    (project / "watchfiles.py").write_text("raise ModuleNotFoundError(name='watchfiles')", encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "onerow", "worker", "app", "--reload"], cwd=project, env=environment(),
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert result.returncode == 64
    assert "pip install 'onerow[reload]'" in result.stderr


FAILING = """from onerow import Permanent, Pipeline, Queue

posts = Pipeline("posts")


@posts.phase
def tag(job):
    print("tagging")
    raise Permanent("no \\x1b[2Jpost, password=hunter2hunter2")


queue = Queue("sqlite:///tasks.db").serve(posts)
"""


def log_of(project: Path, *options: str) -> list[str]:
    (project / "app.py").write_text(FAILING, encoding="utf-8")
    onerow(project, "publish", "app")
    onerow(project, "add", "posts")
    done = subprocess.run(
        [sys.executable, "-m", "onerow", "worker", "app", "--until-idle", *options], cwd=project, env=environment(),
        capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    assert "hunter2" not in done.stderr
    assert "\x1b" not in done.stderr
    return done.stderr.splitlines()


def test_the_json_log_is_one_object_per_line_with_fields(project: Path) -> None:
    found = [json.loads(line) for line in log_of(project, "--log-format", "json", "--output")]
    (failed,) = [line for line in found if line.get("event") == "TaskFailed"]
    assert (failed["level"], failed["pipeline"], failed["phase"], failed["attempt"]) == ("error", "posts", "tag", 1)
    assert failed["error_class"] == "permanent"
    (shown,) = [line for line in found if line.get("stream") == "out"]
    assert (shown["task_id"], shown["message"]) == (failed["task_id"], f"{failed['task_id'][-8:]} tagging")


def test_the_logfmt_log_is_key_value(project: Path) -> None:
    (failed,) = [line for line in log_of(project, "--log-format", "logfmt") if "event=TaskFailed" in line]
    assert " level=error logger=onerow message=" in failed
    assert " pipeline=posts phase=tag attempt=1 error_class=permanent " in failed


def test_the_text_log_shows_output_only_where_asked_if_there_is_no_terminal(project: Path) -> None:
    assert not [line for line in log_of(project) if line.endswith(" tagging")]
    assert [line for line in log_of(project, "--output") if line.endswith(" tagging")]


def test_a_wrong_app_is_one_json_object_too(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onerow", "worker", "nowhere", "--log-format", "json"], cwd=project, env=environment(),
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 64
    assert "no module 'nowhere'" in found[0]["message"]
    assert "PYTHONPATH" in found[0]["fix"]
