"""A script that adds tasks or runs a worker at import is refused, with the line to change."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onerow import Queue, Status

APP = """
from onerow import Pipeline, Queue, Worker

queue = Queue("sqlite:///{store}")
letters = Pipeline("letters")


@letters.phase(isolate="process", retry=0)
def write(job):
    return job


def main():
    {line}


{call}
"""


def make(folder: Path, line: str, *, guarded: bool) -> None:
    call = 'if __name__ == "__main__":\n    main()' if guarded else "main()"
    (folder / "script.py").write_text(APP.format(store=folder / "s.db", line=line, call=call))


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEROW_")}
    return subprocess.run(
        [sys.executable, *argv], cwd=folder, env=environment | {"PYTHONPATH": str(folder)}, capture_output=True,
        text=True, timeout=900, check=False,
    )  # fmt: skip


ADDS, WORKS = "queue.add(letters, 1)", "Worker(queue, [letters], until_idle=True).run()"


@pytest.mark.parametrize("command", ["check", "publish", "worker"])
@pytest.mark.parametrize("line, what", [(ADDS, "adds a task"), (WORKS, "runs a worker")])
def test_a_command_refuses_an_app_that_acts_at_import(tmp_path: Path, command: str, line: str, what: str) -> None:
    make(tmp_path, line, guarded=False)
    extra = ["--until-idle"] if command == "worker" else []
    done = run(tmp_path, "-m", "onerow", command, "script", *extra)
    assert done.returncode != 0
    problem, fix = done.stderr.splitlines()[-2:]
    assert problem.startswith("onerow: ")
    assert problem.endswith(
        f"script.py:17 {what} while the app is imported, so every process that imports it would do so again"
    )
    assert problem.count("script.py") == 1, "the place once"
    assert fix.strip() == 'put this line under `if __name__ == "__main__":`, or in a script of its own'
    if (tmp_path / "s.db").exists():
        assert Queue(f"sqlite:///{tmp_path / 's.db'}").count() == []


def test_the_process_of_an_isolated_handler_refuses_it_too(tmp_path: Path) -> None:
    make(tmp_path, f"{ADDS}; {WORKS}", guarded=False)
    run(tmp_path, "script.py")
    (task,) = Queue(f"sqlite:///{tmp_path / 's.db'}").find().tasks
    assert (task.status, len(task.history)) == (Status.FAILED, 1)
    assert "script.py:17 adds a task while the app is imported" in (task.error or "")
    assert 'put this line under `if __name__ == "__main__":`' in (task.error or "")


def test_a_guarded_script_works_as_script_and_as_app(tmp_path: Path) -> None:
    make(tmp_path, f"{ADDS}; {WORKS}", guarded=True)
    assert run(tmp_path, "script.py").returncode == 0
    assert run(tmp_path, "-m", "onerow", "check", "script").returncode == 0
    (task,) = Queue(f"sqlite:///{tmp_path / 's.db'}").find().tasks
    assert (task.status, task.result) == (Status.COMPLETED, 1)
