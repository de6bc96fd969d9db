"""Where the store URL comes from, for `Queue()` and for every command, and what `onerow config` prints."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from onerow import BadInput, Queue, environment
from onerow.core.errors import with_fix
from onerow.stores.sqlite import SqliteStore
from tests.cli.conftest import Run

pytest_plugins = ["pytester"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project folder; the current folder is one below it."""
    folder = tmp_path / "project"
    (folder / "below").mkdir(parents=True)
    monkeypatch.delenv("ONEROW_STORE", raising=False)
    monkeypatch.chdir(folder / "below")
    return folder


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def test_a_queue_takes_its_store_from_the_settings_file(project: Path) -> None:
    write(project / "pyproject.toml", '[tool.onerow]\nstore = "sqlite:///a.db"\n')
    assert Queue().url == f"sqlite:///{project}/a.db"
    write(project / "onerow.toml", 'store = "sqlite:///b.db"\n')
    assert Queue().url == f"sqlite:///{project}/b.db"


@pytest.fixture
def outside_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ONEROW_STORE replace URLs as in a program; the plugin ends that for a pytest run."""
    monkeypatch.setattr(environment, "replaces_urls", True)


@pytest.mark.usefixtures("outside_of_tests")
def test_the_environment_precedes_the_code_and_the_code_precedes_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project / "onerow.toml", 'store = "sqlite:///file.db"\n')
    assert Queue().named_by == str(project / "onerow.toml")
    assert Queue("sqlite:////tmp/code.db").url == "sqlite:////tmp/code.db"
    assert Queue("sqlite:////tmp/code.db").named_by == "the code"
    monkeypatch.setenv("ONEROW_STORE", "sqlite:///variable.db")
    for queue in (Queue(), Queue("sqlite:////tmp/code.db")):
        assert queue.url == f"sqlite:///{project}/variable.db"
    assert Queue().named_by == "ONEROW_STORE"
    assert Queue("sqlite:///variable.db").named_by == "ONEROW_STORE"
    assert Queue("sqlite:////tmp/code.db").named_by == "ONEROW_STORE, in place of sqlite:////tmp/code.db in the code"
    assert "hunter2" not in Queue("postgresql://ann:hunter2@host/db").named_by


@pytest.mark.usefixtures("outside_of_tests")
def test_the_environment_replaces_neither_memory_nor_a_store_object(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEROW_STORE", "sqlite:///variable.db")
    with closing(SqliteStore(project / "own.db")) as store:
        for queue, url in (Queue("memory://"), "memory://"), (Queue(store), store.url):
            assert (queue.url.startswith(url), queue.named_by) == (True, "the code")


def test_the_environment_of_a_shell_does_not_replace_the_url_of_a_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_store = "from onerow import Queue\nqueue = Queue('sqlite:////tmp/code.db')\n"
    check = "assert queue.url == 'sqlite:////tmp/code.db'"
    pytester.makeconftest(f"{name_store}{check}\n")
    pytester.makepyfile(f"{name_store}\ndef test_url(): {check}\n")
    monkeypatch.setenv("ONEROW_STORE", "sqlite:////tmp/production.db")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_pyproject_without_a_table_for_onerow_does_not_end_the_search(project: Path) -> None:
    write(project / "onerow.toml", 'store = "sqlite:///a.db"\n')
    write(project / "below" / "pyproject.toml", '[project]\nname = "part"\n')
    assert Queue().url == f"sqlite:///{project}/a.db"


def test_a_queue_without_any_setting_says_where_to_write_one(project: Path) -> None:
    with pytest.raises(BadInput, match=r"no store is named\n.*ONEROW_STORE.*onerow.toml"):
        Queue()


@pytest.mark.parametrize("store", [None, 7, ["sqlite:///a.db"]])
def test_a_store_that_is_no_url_is_refused(project: Path, store: object) -> None:
    write(project / "onerow.toml", 'store = "sqlite:///a.db"\n')  # not used in place of an unset variable
    with pytest.raises(BadInput, match="must be a URL or a store\nleave it out to use ONEROW_STORE"):
        Queue(store)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text, hint",
    [
        ('stroe = "sqlite:///a.db"', "unknown key 'stroe'; did you mean 'store'?"),
        ("colour = 1", "unknown key 'colour'; choose one of keep, store"),
        ("store = 7", "store must be text"),
        ("store = ", "can't be read"),
    ],
)
def test_a_mistake_in_the_settings_file_is_an_error(project: Path, run: Run, text: str, hint: str) -> None:
    write(project / "onerow.toml", text)
    os.chdir(project)
    with pytest.raises(BadInput) as refused:
        Queue()
    assert hint in with_fix(refused.value)
    assert str(project / "onerow.toml") in str(refused.value)
    assert "onerow.toml" in run("config", "--store", "sqlite:///b.db", code=64).stderr


def test_config_prints_each_value_and_its_source(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no store is named" in run("config", code=64).stderr
    write(tmp_path / "onerow.toml", 'store = "sqlite:///a.db"\n')
    found = json.loads(run("config", "--json").stdout)
    file = str(tmp_path / "onerow.toml")
    assert found == {"store": {"value": f"sqlite:///{tmp_path}/a.db", "source": file}, "file": file}
    monkeypatch.setenv("ONEROW_STORE", "sqlite:///b.db")
    assert json.loads(run("config", "--json").stdout)["store"]["source"] == "ONEROW_STORE"
    printed = run("config", "--store", "sqlite:///c.db")
    assert "c.db" in printed.stdout
    assert "--store" in printed.stdout
    assert file in printed.stderr


def test_config_masks_passwords(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setenv("ONEROW_STORE", "postgresql://ann:hunter2@host/db?sslpassword=hunter2")
    for words in (["config"], ["config", "--json"]):
        result = run(*words)
        assert "postgresql://ann:***@host" in result.stdout
        assert "hunter2" not in result.output


APP = "from onerow import Pipeline, Queue\np = Pipeline('p')\n@p.phase\ndef one(job): ...\nqueue = {}\n"


def onerow(folder: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if name != "ONEROW_STORE"}
    return subprocess.run(
        [sys.executable, "-m", "onerow", *words], cwd=folder, capture_output=True, env=clean | variables, text=True,
        timeout=900,
    )  # fmt: skip


@pytest.mark.parametrize("queue", ["Queue()", "Queue('sqlite:///file.db')"])
def test_the_store_option_then_the_environment_decide_for_an_app(tmp_path: Path, queue: str) -> None:
    write(tmp_path / "app.py", APP.format(queue))
    write(tmp_path / "onerow.toml", 'store = "sqlite:///file.db"\n')
    named = {"ONEROW_STORE": "sqlite:///variable.db"}
    for options, variables, database, by in (
        (["--store", "sqlite:///option.db"], named, "option.db", "--store"),
        ([], named, "variable.db", "ONEROW_STORE"),
        ([], {}, "file.db", "the code" if "file" in queue else str(tmp_path / "onerow.toml")),
    ):
        result = onerow(tmp_path, "publish", "app", *options, "--json", **variables)
        assert json.loads(result.stdout)["store"] == f"sqlite:///{tmp_path}/{database}"
        said = onerow(tmp_path, "check", "app", *options, **variables).stdout
        replaces = " in place of sqlite:///file.db in the code" if "file" in queue and by != "the code" else ""
        assert f"store sqlite:///{tmp_path}/{database} (named by {by}{',' if replaces else ''}{replaces})" in said


def test_a_worker_and_publish_print_the_store_and_who_named_it(tmp_path: Path) -> None:
    write(tmp_path / "app.py", APP.format("Queue('sqlite:///file.db')"))
    named = "(named by ONEROW_STORE, in place of sqlite:///file.db in the code)"
    for words in ["worker", "app", "--until-idle"], ["publish", "app"]:
        result = onerow(tmp_path, *words, ONEROW_STORE="sqlite:///variable.db")
        assert f"sqlite:///{tmp_path}/variable.db {named}" in result.stdout + result.stderr


@pytest.mark.parametrize("queue", ["Queue('memory://')", "Queue(SqliteStore('own.db'))"])
def test_the_store_option_is_refused_where_it_cannot_decide(tmp_path: Path, queue: str) -> None:
    write(tmp_path / "app.py", "from onerow.stores.sqlite import SqliteStore\n" + APP.format(queue))
    result = onerow(tmp_path, "check", "app", "--store", "sqlite:///option.db")
    assert (result.returncode, "Queue() or Queue('URL')" in result.stderr) == (64, True)
