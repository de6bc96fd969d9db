"""Problems that doctor must find; the commands that doctor and why print must work as printed."""

import json
import re
import shlex
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from msgspec.structs import replace

from onerow.cli.main import main
from onerow.core.plan import PhasePlan, Plan
from onerow.engine.control import definitions, notes
from onerow.engine.queue.move import move
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Reason, Views
from onerow.ports import Claim, Note, PhaseClaim
from onerow.stores.sqlite import SqliteStore, maintenance
from tests.cli.conftest import VIDEOS, Run
from tests.samples import NOW, SECOND, a_task, claimed

IRREVERSIBLE = {"cancel", "finish", "purge", "replay"}


def filled(path: Path, count: int = 3_000) -> str:
    """Return the URL of a store with some hundred pages."""
    store = SqliteStore(path)
    store.prepare()
    definitions.publish(store, [VIDEOS])
    store.insert([a_task(f"t{number}", payload={"n": "x" * 300}) for number in range(count)])
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return store.url


@pytest.mark.parametrize(
    "ahead, found",
    [(timedelta(hours=1), r"differ by 3[56]\d\d\.\d s"), (-timedelta(minutes=5), r"differ by 3\d\d\.\d s")],
)
def test_doctor_finds_a_wrong_clock(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: timedelta, found: str
) -> None:
    url = filled(tmp_path / "t.db", 1)
    assert "✓ the clock is right" in run("doctor", "--store", url).stdout
    defaults = SqliteStore.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "clock", lambda: datetime.now(UTC) + ahead)
    said = run("doctor", "--store", url).stdout
    assert re.search(f"! the store's clock and this machine's {found}", said)
    assert "the clock is right" not in said


@pytest.mark.parametrize("where", ["a page of tasks", "the root of the tables", "the first page"])
def test_doctor_finds_a_damaged_file(run: Run, tmp_path: Path, where: str) -> None:
    path = tmp_path / "t.db"
    url = filled(path)
    assert "✓ the file is sound" in run("doctor", "--store", url).stdout
    with sqlite3.connect(path) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'task_queue'").fetchone()
    connection.close()
    page = {"a page of tasks": path.stat().st_size // size // 2, "the root of the tables": root, "the first page": 1}
    with path.open("r+b") as file:
        # After the header, so that it still is an SQLite file.
        file.seek((page[where] - 1) * size + (100 if where == "the first page" else 0))
        file.write(b"\xa5" * (size - 100))
    said = run("doctor", "--store", url, code=1).stdout
    assert re.search(r"^✗ .*(damaged|malformed)", said, re.MULTILINE)
    assert "→ restore a backup" in said
    assert {f["level"] for f in json.loads(run("doctor", "--json", "--store", url, code=1).stdout)} >= {"bad"}


def test_the_check_of_a_large_file_is_bounded_in_time(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = filled(tmp_path / "t.db")
    monkeypatch.setattr(maintenance, "_CHECK_FOR", -1.0)
    said = run("doctor", "--store", url).stdout
    assert "✓ no damage was found in -1 s, in which the file was not read to its end" in said
    assert "✓ the counters of ended tasks are right" in said, "the connection is good for more"


def test_doctor_writes_nothing(run: Run, tmp_path: Path) -> None:
    url = filled(tmp_path / "t.db", 1)
    run("doctor", "--store", url)
    store = SqliteStore(tmp_path / "t.db")
    assert store.notes("doctor") == []
    store.close()


def test_doctor_names_the_new_store_of_a_moved_queue(run: Run, tmp_path: Path) -> None:
    url = filled(tmp_path / "t.db", 1)
    old, new = SqliteStore(tmp_path / "t.db"), SqliteStore(tmp_path / "new.db")
    move(old, new, wait=lambda seconds: None)
    why = Views(Queue(old)).why("t0")
    old.close()
    new.close()
    said = run("doctor", "--store", url).stdout
    assert f"this queue was moved: it takes no new tasks here, {new.url} does" in said
    assert "onerow resume" not in said, "its tasks would run twice"
    assert (why.code, why.command) == ("paused", "")
    assert f"was moved to {new.url}" in run("add", "videos", "--store", url, code=78).stderr


# ── hints ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def commands_in(text: str) -> list[list[str]]:
    """Return the command at the end of a hint, split as a shell does."""
    assert text.count("onerow ") <= 1
    _, found, rest = text.partition("onerow ")
    return [shlex.split(rest)] if found else []


def parses(words: list[str]) -> None:
    """Assert that the command line parses, without running it."""
    context = click.Context(main, info_name="onerow")
    command = main.get_command(context, words[0])
    assert command is not None
    command.make_context(words[0], words[1:], parent=context)


def test_every_hint_of_doctor_is_a_command_that_finds_something(run: Run, town: str) -> None:
    store = SqliteStore(town.removeprefix("sqlite:///"))
    store.insert(
        [
            claimed(a_task("stuck", run_at=NOW - 500 * SECOND), NOW - 400 * SECOND),
            a_task("odd", phase="film"),
            a_task("other", pipeline="posts", phase="film"),
            a_task("unpublished", pipeline="films"),
        ]
    )
    definitions.publish(store, [Plan(name="posts", phases=(PhasePlan(name="film"),))])
    for pipeline, phase in (("videos", "script"), ("videos", "film"), ("posts", "*")):
        definitions.set_pause(store, pipeline, phase, "ann", "a reason")
    store.close()
    findings = json.loads(run("doctor", "--json", "--store", town, code=1).stdout)
    offered = [words for finding in findings for words in commands_in(finding["fix"])]
    assert {words[0] for words in offered} >= {"list", "failures", "resume", "worker", "publish"}
    assert not IRREVERSIBLE & {words[0] for words in offered}
    for words in offered:
        parses(words)
        if "APP" in words:
            continue
        answer = run(*words, "--json", "--store", town)
        match words[0]:
            case "list":
                assert [task["task_id"] for task in json.loads(answer.stdout)["tasks"]] == ["odd"]
            case "failures":
                assert {group["phase"] for group in json.loads(answer.stdout)["groups"]} == {"script"}
            case "resume":
                assert json.loads(answer.stdout)["was_paused"]
    after = json.loads(run("doctor", "--json", "--store", town, code=1).stdout)
    assert not [finding for finding in after if "paused" in finding["what"]]


def test_the_sql_that_doctor_offers_restores_an_index(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    url = filled(path, 1)
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "DROP INDEX task_slot; DROP INDEX task_parked; CREATE INDEX task_parked ON task_queue (run_at)"
        )
    findings = json.loads(run("doctor", "--json", "--store", url, code=1).stdout)
    offered = [fix for finding in findings if (fix := finding["fix"]).startswith("run this SQL in the file: ")]
    assert len(offered) == 2
    with sqlite3.connect(path) as connection:
        for fix in offered:
            connection.executescript(fix.partition(": ")[2])
    connection.close()
    assert "all tables and indexes are there" in run("doctor", "--store", url).stdout


PLAN = Plan(
    name="videos",
    phases=(
        PhasePlan(name="script", concurrency=1, per_key=5),
        PhasePlan(name="video", concurrency=7, per_key=1),
        PhasePlan(name="image", kind="wait_for", signal="go", timeout=None),
    ),
)


@pytest.mark.parametrize("task_id", ["t 1", "it's", "-t", "조수"])
def test_every_command_of_why_works_as_it_is_printed(run: Run, tmp_path: Path, frozen: None, task_id: str) -> None:
    store = SqliteStore(tmp_path / "t.db")
    store.prepare()
    definitions.publish(store, [PLAN])
    body = {"phases": [["videos", "script"], ["videos", "video"]]}
    notes.put(store, Note(definitions.WORKER, "w1", body))
    base = a_task(task_id)
    cases = {
        "not-due": replace(base, run_at=NOW + 100 * SECOND),
        "signal": replace(base, phase="image", awaiting="signal:go", run_at=NOW + 100 * SECOND),
        "children": replace(base, awaiting="children", children=1, run_at=NOW + 100 * SECOND),
        "queued": base,
        "failed": replace(base, status="failed", error="no", error_class="permanent", completed_at=NOW),
        "paused": replace(base, phase="video"),
        "no-phase": replace(base, phase="film"),
    }
    store.insert([a_task("child", parent_id=task_id), a_task("first", run_at=NOW - 100 * SECOND)])
    definitions.set_pause(store, "videos", "video", "ann", "")
    for code, task in cases.items():
        store.insert([task])
        reason = Views(Queue(store)).why(task_id)
        assert reason.code == code
        works(run, store, reason)
        store.remove(store.fetch([task_id]))
    store.close()


def works(run: Run, store: SqliteStore, reason: Reason) -> None:
    (words,) = commands_in(reason.command)
    assert words[0] not in IRREVERSIBLE
    parses(words)
    if "APP" in words:
        return
    options = ["--json", "--store", store.url]
    found = json.loads(run(words[0], *options, *words[1:]).stdout)
    if words[0] == "list":
        assert [task["task_id"] for task in found["tasks"]] == ["child"]


@pytest.mark.parametrize("phase, limits", [("script", {"concurrency": 2}), ("video", {"per_key": 2})])
def test_the_command_that_raises_a_limit_leaves_the_other_limit_alone(
    run: Run, tmp_path: Path, frozen: None, phase: str, limits: dict[str, int]
) -> None:
    store = SqliteStore(tmp_path / "t.db")
    store.prepare()
    definitions.publish(store, [PLAN])
    body = {"phases": [["videos", "script"], ["videos", "video"]]}
    notes.put(store, Note(definitions.WORKER, "w1", body))
    store.insert([a_task("holds", phase=phase, limit_key="k"), a_task("waits", phase=phase, limit_key="k")])
    want = PhaseClaim(pipeline="videos", phase=phase, limit=1, lease_for=30 * SECOND, slots=7, key_slots=5)
    assert len(store.claim(Claim("w1", [want], ids=["holds"]))) == 1
    reason = Views(Queue(store)).why("waits")
    assert reason.code == "limit"
    works(run, store, reason)
    setting = definitions.load_controls(store).setting_of("videos", [phase])
    assert setting is not None
    assert (setting.limits, setting.by) == (limits, "ann")
    store.close()
