"""`onerow worker`: its first lines, --until-idle, --reload and its statistics."""

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

PATIENCE = 100.0


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
        assert first[0] == f"store     sqlite:///{project}/tasks.db"
        assert first[1] == "pipeline  greetings: compose → translate → deliver"
        app = project / "app.py"
        app.write_text(app.read_text(encoding="utf-8").replace("Hello, ", "Goodbye, "), encoding="utf-8")
        until(lambda: log.read_text().count("serves greetings") == 2)
        assert "onerow: app.py changed, restarting workers" in log.read_text()
        task_id = onerow(project, "add", "greetings", "name=Ann").strip()
        until(lambda: '"status": "completed"' in onerow(project, "show", task_id, "--json"))
        assert "GOODBYE, ANN!" in onerow(project, "logs", task_id)
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
