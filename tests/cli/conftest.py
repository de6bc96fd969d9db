"""A store with sample tasks and a fixed clock, and a fixture that runs the command line on it."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from onerow.cli.main import main
from onerow.core import rules
from onerow.core.plan import PhasePlan, Plan
from onerow.core.retry import Retry
from onerow.core.task import Task
from onerow.engine.control import definitions
from onerow.engine.control.definitions import WORKER
from onerow.engine.control.inbox_counts import INBOX
from onerow.engine.control.stats import STATS, note_name
from onerow.ports import Claim, LogLine, Move, Note, PhaseClaim, Store
from onerow.stores.sqlite import SqliteStore
from tests.samples import BROKEN, HOPELESS, NOW, SECOND, a_task, claimed

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
VIDEOS = Plan(
    name="videos",
    title="{topic}",
    phases=(
        PhasePlan(name="schedule", kind="wait_until", field="scheduled_time", timeout=None),
        PhasePlan(name="script", concurrency=2, retry=Retry(3, wait="5s", factor=3)),
        PhasePlan(name="image", kind="wait_for", signal="images.ready", timeout=timedelta(days=3)),
        PhasePlan(name="video", concurrency=1),
        PhasePlan(name="youtube"),
    ),
)
Run = Callable[..., Result]


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix the clock of every SQLite store that is opened."""
    defaults = SqliteStore.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "clock", lambda: NOW)
    monkeypatch.setattr("getpass.getuser", lambda: "ann")


@pytest.fixture
def town(tmp_path: Path, frozen: None) -> str:
    """Return the URL of a store with tasks in every status."""
    store = SqliteStore(tmp_path / "town.db")
    store.prepare()
    fill(store)
    store.close()
    return store.url


def fill(store: Store) -> None:
    """Store a definition, tasks in every status, a worker, statistics and a log; the clock of the store is at NOW."""
    definitions.publish(store, [VIDEOS])
    titles = {"waits": "Tides", "later": "조수와 달", "parked": "月の満ち欠け", "runs": "Wolken", "done": "Les marées"}
    tasks = [
        a_task("waits", title="Tides", created_at=NOW - 90 * SECOND, run_at=NOW - 90 * SECOND, payload={"topic": "tides"}),
        a_task("later", phase="schedule", title=titles["later"], created_at=NOW - HOUR, run_at=NOW + HOUR, user_id="u1"),
        a_task("parked", phase="image", title=titles["parked"], created_at=NOW - 2 * HOUR,
               awaiting="signal:images.ready", run_at=NOW + 70 * HOUR, results_json='{"script":"글"}'),
        a_task("runs", phase="video", title="Wolken", created_at=NOW - 3 * HOUR, run_at=NOW - 3 * HOUR,
               progress_json='{"done":3,"total":4,"note":"frames"}'),
        a_task("again", title="Again", created_at=NOW - 4 * HOUR, run_at=NOW - 4 * HOUR),
        a_task("failed", title="No such \x1b[31mthing", created_at=NOW - 5 * HOUR, run_at=NOW - 5 * HOUR, user_id="u1"),
        a_task("done", phase="youtube", title="Les marées", created_at=NOW - 26 * HOUR, run_at=NOW - 26 * HOUR),
        a_task("gone", title="Dropped", created_at=NOW - 60 * HOUR, run_at=NOW - 60 * HOUR),
    ]  # fmt: skip
    store.insert(tasks)
    store.claim(Claim("w1", [PhaseClaim(pipeline="videos", phase="video", limit=1, lease_for=30 * SECOND)]))
    by_id = {task.task_id: task for task in tasks}

    def move(task_id: str, after: Task) -> None:
        store.swap([Move(by_id[task_id], replace(after, version=2))])

    again = claimed(by_id["again"], NOW - 2 * SECOND)
    move("again", rules.fail(again, BROKEN, VIDEOS, NOW, by="w1"))
    failed = claimed(by_id["failed"], NOW - 4 * HOUR - SECOND)
    move("failed", rules.fail(failed, HOPELESS, VIDEOS, NOW - 4 * HOUR, by="w1"))
    done = claimed(by_id["done"], NOW - 25 * HOUR - 12 * SECOND)
    move("done", rules.finish(done, '"published"', NOW - 25 * HOUR, by="w1"))
    move("gone", rules.cancel(by_id["gone"], NOW - 50 * HOUR, by="ann", note="not wanted"))
    body = {"host": "h", "pid": 7, "started_at": (NOW - HOUR).isoformat(), "concurrency": 16,
            "phases": [["videos", "script"], ["videos", "video"], ["videos", "youtube"]],
            "inboxes": [{"name": "folder:/srv/inbox"}]}  # fmt: skip
    store.write_notes([Note(WORKER, "w1", body)])
    counts = {"received": 1204, "added": 1198, "found": 1, "duplicate": 3, "rejected": 2, "released": 0, "lag": 840}
    store.write_notes([Note(INBOX, "2026-11-15T02:28/w1/folder:/srv/inbox", counts)])
    outcomes = {"done": 12, "failed": 1, "retried": 3, "run": {"20": 15, "80": 1}, "wait": {"2": 16}}
    store.write_notes([Note(STATS, note_name("2026-11-15T02:28", "videos", "script", "w1"), outcomes)])
    store.append_log(
        [
            LogLine("failed", NOW - 4 * HOUR, "script", 1, "out", "looking for \x1b[2Jthe topic"),
            LogLine("failed", NOW - 4 * HOUR, "script", 1, "error", "it is not there"),
        ]
    )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `onerow …` in this process, in a folder without a project and without a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONEROW_STORE", "")  # restored after the test, also if a command sets it for its app

    def call(*words: str, code: int = 0, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(main, list(words), input=stdin, prog_name="onerow")
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return call


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compare a text with the golden file of that name; ONEROW_GOLDEN=write writes the file instead."""

    def compare(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / name
        if os.environ.get("ONEROW_GOLDEN") == "write":
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare
