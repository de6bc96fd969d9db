"""Where the store URL comes from, for `Queue()` and for every command, and what `onerow config` prints."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onerow import BadInput, Queue
from onerow.core.errors import with_fix
from tests.cli.conftest import Run


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


def test_the_environment_precedes_the_file_and_the_argument_precedes_both(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project / "onerow.toml", 'store = "sqlite:///file.db"\n')
    monkeypatch.setenv("ONEROW_STORE", "sqlite:///variable.db")
    assert Queue().url == f"sqlite:///{project}/variable.db"
    assert Queue("sqlite:////tmp/argument.db").url == "sqlite:////tmp/argument.db"


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


def test_the_store_option_decides_for_an_app_that_names_no_store(tmp_path: Path) -> None:
    app = "from onerow import Pipeline, Queue\np = Pipeline('p')\n@p.phase\ndef one(job): ...\nqueue = Queue()\n"
    write(tmp_path / "app.py", app)
    write(tmp_path / "onerow.toml", 'store = "sqlite:///file.db"\n')
    for options, database in (["--store", "sqlite:///option.db"], "option.db"), ([], "file.db"):
        result = subprocess.run(
            [sys.executable, "-m", "onerow", "publish", "app", *options, "--json"], cwd=tmp_path, capture_output=True,
            env={name: value for name, value in os.environ.items() if name != "ONEROW_STORE"}, text=True, timeout=900,
            check=True,
        )  # fmt: skip
        assert json.loads(result.stdout)["store"] == f"sqlite:///{tmp_path}/{database}"
