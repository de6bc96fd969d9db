"""The example project of `onerow init` and its test."""

import subprocess
import sys
from pathlib import Path

from onerow.cli.start.init import APP
from tests.cli.conftest import Run


def test_the_starter_project_is_short_and_its_test_passes(run: Run, tmp_path: Path) -> None:
    assert "onerow worker app" in run("init", "my_project").stdout
    assert len(APP.splitlines()) < 40
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"],
        cwd=tmp_path / "my_project", capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout
    assert "2 passed" in result.stdout


def test_the_starter_project_runs(run: Run, tmp_path: Path) -> None:
    run("init", "my_project")
    folder = tmp_path / "my_project"

    def onerow(*words: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "onerow", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=900,
            check=True,
        ).stdout

    assert "!" not in onerow("check", "app")
    onerow("publish", "app")
    task_id = onerow("add", "greetings", "name=Ann").strip()
    onerow("worker", "app", "--until-idle")
    assert "completed in deliver" in onerow("show", task_id)
    assert "HELLO, ANN!" in onerow("logs", task_id)


def test_nothing_is_overwritten(run: Run, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("mine", encoding="utf-8")
    assert "app.py is there already" in run("init", code=64).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["app.py"]
