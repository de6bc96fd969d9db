"""Common errors: one line for the problem, one for the fix, never a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onerow.cli.exit_codes import EXIT_CODES
from onerow.cli.main import COMMANDS
from onerow.stores.sqlite import SqliteStore
from tests.cli.conftest import Run

OPERATING = {
    "add": ["videos"],
    "annotate": ["x", "--metadata", "{}"],
    "backup": ["copy.db"],
    "cancel": ["x"],
    "counts": [],
    "cron": [],
    "fail": ["x", "--error", "no"],
    "drain": ["w1"],
    "failures": [],
    "finish": ["x"],
    "inbox": ["folder:///nowhere", "--once"],
    "inboxes": [],
    "limit": ["videos", "script"],
    "list": [],
    "operations": [],
    "logs": ["x"],
    "monitor": [],
    "pause": ["videos"],
    "set-priority": ["x", "--priority", "1"],
    "purge": ["--older-than", "1d"],
    "replay": ["x"],
    "reschedule": ["x", "--run-at", "now"],
    "resume": ["videos"],
    "retry": ["x"],
    "scale": [],
    "show": ["x"],
    "signal": ["x", "go"],
    "stats": [],
    "watch": ["--once"],
    "why": ["x"],
    "workers": [],
}
"""Every command that needs a store and no app, with valid arguments."""
WITHOUT = {
    "access",
    "demo",
    "dev",
    "init",
    "simulate",
    "soak",
    "web",
    "worker",
    "publish",
    "check",
    "completion",
    "deploy",
    "doctor",
    "migrate",
    "move",
    "config",
    "pg",
    "sqlite",
}


def two_lines(text: str) -> tuple[str, str]:
    first, second = text.splitlines()
    assert first.startswith("onerow: ")
    assert second.startswith("        ")
    return first, second


def test_every_command_is_listed_here() -> None:
    assert set(OPERATING) | WITHOUT == set(COMMANDS)


@pytest.mark.parametrize("name", OPERATING)
def test_a_missing_store_url(run: Run, name: str) -> None:
    what, fix = two_lines(run(name, *OPERATING[name], code=64).stderr)
    assert what == "onerow: no store is named"
    assert "--store" in fix
    assert "ONEROW_STORE" in fix
    assert "memory:" not in what + fix


@pytest.mark.parametrize("name", OPERATING)
def test_a_missing_store_is_not_created(run: Run, name: str, tmp_path: Path) -> None:
    what, fix = two_lines(run(name, *OPERATING[name], "--store", "sqlite:///typo.db", code=69).stderr)
    assert f"no onerow database at sqlite:///{tmp_path}/typo.db" in what
    assert "onerow migrate" in fix
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", OPERATING)
def test_a_store_that_cannot_be_opened(run: Run, name: str, tmp_path: Path) -> None:
    (tmp_path / "folder.db").mkdir()
    what, _ = two_lines(run(name, *OPERATING[name], "--store", "sqlite:///folder.db", code=69).stderr)
    assert "folder.db" in what


@pytest.mark.parametrize(
    "url, hint",
    [
        ("tasks.db", "is not a store URL"),
        ("mysql://host/db", "there is no store named 'mysql'"),
        ("sqlite://tasks.db", "write sqlite:///name.db"),
        ("memory://", "lives and dies with its process"),
    ],
)
def test_an_invalid_url(run: Run, url: str, hint: str) -> None:
    what, fix = two_lines(run("list", "--store", url, code=64).stderr)
    assert hint in what + fix
    assert "memory://" not in fix, "a command can't keep tasks there"


def test_a_password_is_never_shown(run: Run) -> None:
    result = run("list", "--store", "mysql://ann:secret@host/db", code=64)
    assert "secret" not in result.output


def test_a_file_that_is_not_a_database(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("this is text, and a lot of it " * 100, encoding="utf-8")
    assert "is not an SQLite database" in run("list", "--store", "sqlite:///notes.db", code=69).stderr


def test_code_too_old_for_the_database(run: Run, town: str) -> None:
    store = SqliteStore(town.removeprefix("sqlite:///"))
    with store._connections.write() as connection:
        connection.execute("UPDATE onerow_meta SET value = 99")
    store.close()
    what, fix = two_lines(run("list", "--store", town, code=78).stderr)
    assert "schema 99" in what + fix
    assert "pip install -U onerow" in what + fix


def test_the_store_comes_from_the_option_the_environment_or_the_project(
    run: Run, town: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onerow.toml").write_text('store = "sqlite:///town.db"\n', encoding="utf-8")
    deeper = tmp_path / "a" / "b"
    deeper.mkdir(parents=True)
    monkeypatch.chdir(deeper)  # a relative path is relative to the project folder
    assert len(json.loads(run("list", "--json").stdout)["tasks"]) == 8
    (tmp_path / "onerow.toml").unlink()
    (tmp_path / "pyproject.toml").write_text('[tool.onerow]\nstore = "sqlite:///town.db"\n', encoding="utf-8")
    assert len(json.loads(run("list", "--json").stdout)["tasks"]) == 8
    monkeypatch.setenv("ONEROW_STORE", "sqlite:///other.db")
    assert "other.db" in run("list", code=69).stderr
    assert len(json.loads(run("list", "--json", "--store", town).stdout)["tasks"]) == 8


@pytest.mark.parametrize("words, hint", [(["lst"], "did you mean 'list'?"), (["enqueue"], "no command 'enqueue'; did you mean 'add'?"), (["run"], "no command 'run'; did you mean 'worker'?"), (["status"], "no command 'status'; did you mean 'counts'?"), (["list", "--nope"], "No such option"), (["show"], "Missing argument"), (["list", "--limit", "0"], "range")])  # fmt: skip
def test_an_invalid_command_line_exits_2(run: Run, words: list[str], hint: str) -> None:
    assert hint in run(*words, code=2).output


@pytest.mark.parametrize(
    "words, what, fix",
    [
        (["add", "vidoes", "topic=x"], "no pipeline 'vidoes' in the store", "did you mean 'videos'?"),
        (["pause", "vidoes"], "no pipeline 'vidoes' in the store", "did you mean 'videos'?"),
        (["pause", "videos", "scirpt"], "pipeline 'videos' has no phase 'scirpt'", "did you mean 'script'?"),
        (["limit", "videos", "scirpt", "2"], "pipeline 'videos' has no phase 'scirpt'", "did you mean 'script'?"),
        (["replay", "done", "--phase", "scirpt"], "pipeline 'videos' has no phase 'scirpt'", "did you mean 'script'?"),
        (["list", "status:faild"], "no status 'faild'", "did you mean 'failed'?"),
        (
            ["list", "added:1h"],
            "query, column 1: no key added:",
            "did you mean 'age:'?; to search for the text, quote it: \"added:1h\"",
        ),
    ],
)
def test_a_misspelt_name_gets_a_suggestion(run: Run, town: str, words: list[str], what: str, fix: str) -> None:
    first, second = two_lines(run(*words, "--store", town, code=64).stderr)
    assert what in first
    assert second.strip() == fix


def test_a_misspelt_value_of_an_option_gets_a_suggestion(run: Run) -> None:
    text = run("purge", "--older-than", "1d", "--status", "faild", code=2).output
    assert "Did you mean 'failed'?" in text


def test_an_error_is_json_if_json_was_asked_for(run: Run, town: str) -> None:
    error = json.loads(run("add", "vidoes", "--json", "--store", town, code=64).stderr)
    assert error["error"].startswith("no pipeline 'vidoes' in the store")
    assert error["fix"] == "did you mean 'videos'?"
    assert error["error_class"] == "UnknownName"


def test_debug_shows_the_traceback(run: Run) -> None:
    result = run("--debug", "list", code=1)
    assert type(result.exception).__name__ == "BadStoreUrl"


# ── apps ──────────────────────────────────────────────────────────────────────────────────────────────────────────

GOOD = """
from onerow import Pipeline, Queue
videos = Pipeline("videos")
@videos.phase
def script(job): ...
queue = Queue("sqlite:///tasks.db")
"""
APPS = {
    "nowhere": (None, "no module 'nowhere' here", "run the command in the folder that holds it"),
    "empty": ("", "no store is named", "pass --store sqlite:///tasks.db or Queue("),
    "bare": ("from onerow import Queue\nqueue = Queue('sqlite:///t.db')", "bare has no pipelines", "make one"),
    "typo": ("import nosuchthing", "typo.py:1: imports 'nosuchthing', which is not installed", "install it for"),
    "broken": ("\n1 / 0", "broken.py:2: ZeroDivisionError: division by zero", ""),
    "syntax": ("x = 1\ndef script(job:\n", "syntax.py:2: SyntaxError: '(' was never closed: def script(job:", ""),
    "unset": (
        "import os\n\nKEY = os.environ['STUDIO_KEY']",
        "unset.py:3: the environment variable STUDIO_KEY is not set",
        "set it: STUDIO_KEY=…",
    ),
    "unknown": (
        "videos = 1\nprint(vidoes)",
        "unknown.py:2: NameError: 'vidoes' is not defined",
        "did you mean 'videos'?",
    ),
    "wrong": ("from onerow import Piepline", "wrong.py:1: onerow has no 'Piepline'", "did you mean 'Pipeline'?"),
    "missng": (None, "no module 'missng' here", "did you mean 'missing_app'?"),
    "duration": (
        GOOD + "@videos.phase(timeout='15x')\ndef upload(job): ...\n",
        "duration.py:7: phase 'upload' of pipeline 'videos': timeout: can't read the duration '15x'",
        "write it like",
    ),
    "wait": (
        GOOD + "videos.wait_for('image', signal='ready', timeout='soon')\n",
        "wait.py:7: phase 'image' of pipeline 'videos': timeout: can't read the duration 'soon'",
        "write it like",
    ),
    "mistake": (
        GOOD + "@videos.phase\ndef video(job, scirpt): ...\n",
        "parameter 'scirpt' names no earlier phase",
        "did you mean 'script'?",
    ),
    "method": (
        GOOD + "class Studio:\n    @videos.phase\n    def video(self, job): ...\n",
        "method.py:8: phase 'video' of pipeline 'videos': a phase is a function, not a method",
        "define it outside of the class; objects that it needs are resources",
    ),
    "several": (GOOD + "other = Queue('sqlite:///o.db')\n", "several has several queues", "name one: several:NAME"),
}


def onerow(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "ONEROW_STORE"}
    return subprocess.run(
        [sys.executable, "-m", "onerow", *words], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=900, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", APPS)
@pytest.mark.parametrize("command", ["check", "worker"])
def test_an_app_that_cannot_be_served(tmp_path: Path, name: str, command: str) -> None:
    source, what, fix = APPS[name]
    (tmp_path / "missing_app.py").touch()
    if source is not None:
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    if command == "worker" and name not in ("nowhere", "mistake"):
        return  # worker and check load apps with the same code; two cases are enough
    result = onerow(tmp_path, command, name)
    assert result.returncode == 64, result.stderr
    assert what in result.stderr
    assert fix in result.stderr
    assert "Traceback" not in result.stderr


def test_a_relative_path_is_relative_to_the_project_folder(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "good.py").write_text(GOOD, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[tool.onerow]\nstore = "sqlite:///tasks.db"\n', encoding="utf-8")
    assert onerow(tmp_path, "publish", "good").returncode == 0
    assert (tmp_path / "tasks.db").exists()
    assert onerow(inner, "add", "videos", "a=1").returncode == 0
    assert len(json.loads(onerow(inner, "list", "--json").stdout)["tasks"]) == 1
    assert not list(inner.iterdir())


def test_exit_codes_are_documented() -> None:
    page = Path("docs/reference.md").read_text(encoding="utf-8")
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in page
