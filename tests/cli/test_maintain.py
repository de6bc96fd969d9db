"""Check, doctor, migrate, backup, completion."""

import json
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from onerow.core.filters import Filter
from onerow.core.status import WAITING
from onerow.stores.sqlite import SqliteStore
from tests.cli.conftest import Run
from tests.samples import NOW, SECOND, a_task, claimed


def levels(text: str) -> set[str]:
    return {line[0] for line in text.splitlines() if line[0] in "✓!✗"}


def test_migrate_checks_and_applies_migrations(run: Run, tmp_path: Path) -> None:
    url = "sqlite:///new.db"
    assert "needs schema 2 (it has 0)" in run("migrate", "--check", "--store", url, code=1).stdout
    sql = run("migrate", "--sql", "--store", url).stdout
    assert "CREATE TABLE task_queue" in sql
    assert not (tmp_path / "new.db").exists()
    assert "now has schema 2" in run("migrate", "--store", url).stdout
    assert "has schema 2" in run("migrate", "--check", "--store", url).stdout
    assert json.loads(run("migrate", "--json", "--store", url).stdout)["stored"] == 2
    with sqlite3.connect(tmp_path / "by_hand.db") as by_hand:
        by_hand.executescript(sql)


def test_doctor_reports_no_problem_in_a_healthy_store(run: Run, town: str) -> None:
    result = run("doctor", "--store", town)
    assert "✗" not in result.stdout
    assert "✓ the counters of ended tasks are right" in result.stdout
    assert "→ onerow failures" in result.stdout


def test_doctor_finds_a_missing_index_a_stuck_lease_and_unknown_phases(run: Run, town: str) -> None:
    store = SqliteStore(town.removeprefix("sqlite:///"))
    store.insert([claimed(a_task("stuck", run_at=NOW - 500 * SECOND), NOW - 400 * SECOND), a_task("odd", phase="film")])
    store.close()
    found = run("doctor", "--store", town, code=1).stdout
    assert "✗ 1 lease ended and no worker rescued the tasks, for example stuck" in found
    assert "✗ 1 task stands at videos.film, which no published code knows" in found
    with store._connections.write() as connection:
        connection.execute("DROP INDEX task_slot")
        connection.execute("UPDATE onerow_tally SET count = count + 5")
    store.close()
    found = run("doctor", "--store", town, code=1).stdout
    assert "✗ task_slot is missing or another: limits or keys don't hold" in found
    assert "! the counters of ended tasks are not what is there" in found
    found = run("doctor", "--repair", "--store", town, code=1).stdout
    assert "✓ the counters of ended tasks are right" in found
    assert {f["level"] for f in json.loads(run("doctor", "--json", "--store", town, code=1).stdout)} >= {"good", "bad"}


def test_doctor_without_a_database(run: Run) -> None:
    assert "✗ there is no file" in run("doctor", "--store", "sqlite:///nothing.db", code=1).stdout


def test_check_warns_only_of_threads_without_a_timeout(run: Run, tmp_path: Path) -> None:
    (tmp_path / "warned.py").write_text(
        "from onerow import Pipeline\n"
        "p = Pipeline('p')\n"
        "@p.phase(timeout=None)\ndef endless(job): ...\n"
        "@p.phase\ndef plain(job): ...\n"
        "@p.phase(timeout='4h')\ndef slow(job): ...\n"
        "@p.phase\nasync def gentle(job): ...\n"
        "@p.phase(isolate='process')\ndef alone(job): ...\n",
        encoding="utf-8",
    )
    result = subprocess.run(
        [sys.executable, "-m", "onerow", "check", "warned", "--store", "sqlite:///t.db"],
        cwd=tmp_path, capture_output=True, text=True, timeout=900, check=True,
    )  # fmt: skip
    assert "✓ pipeline p: endless → plain → slow → gentle → alone" in result.stdout
    (warning,) = [line for line in result.stdout.splitlines() if line.startswith("!")]
    assert warning.startswith("! p.endless has no timeout and runs in a thread")
    assert '→ @p.phase(timeout="15m"), or isolate="process"' in result.stdout
    assert not (tmp_path / "t.db").exists(), "check opens no store"


def test_a_backup_is_consistent_during_writes(run: Run, town: str, tmp_path: Path) -> None:
    store = SqliteStore(town.removeprefix("sqlite:///"))
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            store.insert([a_task(f"w{number}-{n}") for n in range(20)])
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        answer = json.loads(run("backup", "copy.db", "--json", "--store", town).stdout)
    finally:
        stop.set()
        writer.join()
    store.close()
    copy = SqliteStore(answer["file"])
    assert {"waits", "done"} <= {task.task_id for task in copy.fetch(["waits", "done"])}
    counted = sum(tally.count for tally in copy.count(Filter(statuses=frozenset({WAITING}))))
    assert (counted - 4) % 20 == 0, "each of the writer's transactions is there whole or not at all"
    copy.close()
    assert "exists already" in run("backup", "copy.db", "--store", town, code=64).stderr
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(run: Run, shell: str) -> None:
    assert "_ONEROW_COMPLETE" in run("completion", shell).stdout
