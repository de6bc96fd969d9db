"""The view transcription_jobs: the seed's words, paths and flags."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from apps.transcriber.tests.kit import GPT, home_at, model_server, recording, work
from transcriber import add_job, open_queue
from transcriber.view import make_view

pytestmark = pytest.mark.xdist_group("transcriber, view")
FLAGS = ("download", "transcription", "summary", "srt", "translation")
LATER = "2040-01-01T00:00:00Z"
Rows = dict[str, sqlite3.Row]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The rows of the view by id: a completed, a failed, a queued, a cancelled and a running job."""
    folder = tmp_path_factory.mktemp("view")
    path = str(recording(folder / "t.wav", speech=(0.5,)))
    with home_at(folder) as home, model_server():
        queue = open_queue()
        make_view(queue)
        make_view(queue)
        add_job(path, task_id="1", engine=GPT, srt=True, summary=True)
        add_job("/no/such/file", task_id="2")
        work()
        add_job(path, task_id="3", title="후", run_at=LATER)
        add_job(path, task_id="4", run_at=LATER)
        queue.cancel("4")
        add_job(path, task_id="5")
        for _ in ("order", "playlist"):
            queue.finish("5", phase_only=True)
        with (
            queue.claim("transcribe", "transcribe", ids=["5"]),
            contextlib.closing(sqlite3.connect(home / "transcriber.db")) as database,
        ):
            database.row_factory = sqlite3.Row
            found = {row["id"]: row for row in database.execute("SELECT * FROM transcription_jobs")}
        queue.close()
    return found


@pytest.mark.contract("Table (view) `transcription_jobs` with the words queued, running, completed, failed, cancelled.")
def test_the_view_has_the_seed_s_words(rows: Rows) -> None:
    words = {name: row["status"] for name, row in rows.items()}
    assert words == {"1": "completed", "2": "failed", "3": "queued", "4": "cancelled", "5": "running"}


@pytest.mark.contract("The view has the paths and the five flags.")
def test_the_view_has_the_paths(rows: Rows) -> None:
    for name in ("transcript_path", "audio_path", "srt_path", "vtt_path", "log_path"):
        assert Path(rows["1"][name]).is_file()
        assert rows["3"][name] is None


@pytest.mark.contract("The view has the paths and the five flags.")
def test_the_view_has_the_five_flags(rows: Rows) -> None:
    assert [rows["1"][f"{flag}_completed"] for flag in FLAGS] == [1, 1, 1, 1, 0]
    assert [rows["3"][f"{flag}_completed"] for flag in FLAGS] == [0] * 5


def test_the_view_has_the_job_s_own_columns(rows: Rows) -> None:
    assert (rows["1"]["summary"], rows["1"]["engine"]) == ("요약입니다.", GPT)
    assert rows["1"]["url"].endswith("/t.wav")
    assert "there is no file" in rows["2"]["error"]
    assert rows["3"]["title"] == "후"
