"""The monitor on the jobs: words, tabs, search, detail, operations, its own log."""

import asyncio
import re
import stat
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from apps.transcriber.tests.kit import GPT, home_at, model_server, recording, until, work, works
from apps.transcriber.tests.model_server import ModelServer
from onerow import BadQuery, Queue, Worker
from onerow.cli import formatting
from onerow.engine.output.masking import NO_SECRETS
from tests.tui.conftest import Session
from transcriber import add_job, monitor, open_queue
from transcriber.settings import Settings

pytestmark = pytest.mark.xdist_group("transcriber, monitor")
LATER = "2040-01-01T00:00:00Z"
# The key, the status before, the status after.
OPERATIONS = [("C", "waiting", "cancelled"), ("r", "failed", "waiting"), ("F", "failed", "completed")]


@asynccontextmanager
async def opened(queue: Queue, query: str = "") -> AsyncIterator[Session]:
    queue.publish(queue.pipelines["transcribe"])
    app = monitor.opened(queue, query)
    async with app.run_test(size=(140, 40), notifications=True) as pilot:
        session = Session(app, pilot)
        await session.until(lambda: app.reads_done > 0, "the first read")
        await pilot.pause()
        yield session


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """The queue with a completed, a failed and a later job."""
    folder = tmp_path_factory.mktemp("monitor")
    path = str(recording(folder / "t.wav", speech=(0.5,)))
    with home_at(folder), model_server():
        queue = open_queue()
        add_job(path, task_id="done", title="조수와 달", engine=GPT)
        add_job("/no/such/film.mp4", task_id="bad", title="Gone")
        work()
        add_job("/later/talk.mp3", task_id="later", title="Later", run_at=LATER)
    yield queue
    queue.close()


@pytest.mark.contract("Monitor (TUI): filter by status, search title and URL.")
def test_it_opens_on_the_jobs_and_filters_and_searches(jobs: Queue) -> None:
    async def test() -> None:
        async with opened(jobs) as session:
            await session.sees("조수와 달", "Gone", "Later", "queued", "completed", "failed", GPT)
            await session.press("tab", "tab", "tab", "tab")
            await session.until(lambda: "Gone" in session.text and "Later" not in session.text, "the tab failed")
        async with opened(jobs, "film.mp4") as session:
            await session.until(lambda: "Gone" in session.text and "Later" not in session.text, "the search by URL")
        async with opened(jobs, "조수") as session:
            await session.until(
                lambda: "조수와 달" in session.text and "Gone" not in session.text, "the search by title"
            )

    run(test)


def test_a_playlist_that_waits_for_its_videos_is_queued(queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "l.m3u").write_text("/no/such.wav\n")
    add_job(str(tmp_path / "l.m3u"), task_id="list")
    assert Worker(queue, phases=["order", "playlist"], until_idle=True).run() == 0

    async def test() -> None:
        async with opened(queue, "id:list") as session:
            await session.sees("queued", "for children")
            assert "parked" not in session.text
            await session.press("enter")
            await session.sees("queued in transcribe.playlist")

    run(test)


def test_before_the_first_job_it_says_how_to_add_one(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.sees("No task matches pipeline:transcribe. Press n to add one.")

    run(test)


def test_queries_have_the_transcriber_s_words(jobs: Queue) -> None:
    async def test() -> None:
        async with opened(jobs, "status:queued") as session:
            await session.until(lambda: "Later" in session.text and "Gone" not in session.text, "the first query")
            await session.press("slash", "ctrl+u", *"status:failed,queued", "enter")
            await session.until(lambda: "Later" in session.text and "Gone" in session.text, "the query that was typed")
            await session.press("colon", *"-status:queued", "enter")
            await session.until(lambda: "Later" not in session.text and "Gone" in session.text, "the line with :")

    run(test)
    assert monitor.in_statuses('title:"status:queued" "status:running"') == 'title:"status:queued" "status:running"'
    with pytest.raises(BadQuery, match="nonsense"):
        monitor.opened(jobs, "status:nonsense")


@pytest.mark.contract("Detail with status, progress, log tail, file paths, run time, engine.")
def test_the_detail_of_a_job(jobs: Queue) -> None:
    task = jobs.get("done")
    assert task.started_at is not None
    assert task.completed_at is not None
    run_time = formatting.span((task.completed_at - task.started_at).total_seconds())

    async def test() -> None:
        async with opened(jobs, "조수") as session:
            await session.press("enter")
            await session.sees("completed", "done", "transcribe")
            shown = session.text
            for _ in range(8):
                await session.press("tab")
                await session.read()
                shown += session.text
            for part in (GPT, "transcript_path", "progress 100%", "::step transcription ok", run_time):
                assert part in shown

    run(test)


@pytest.mark.contract("Whole log, download.")
def test_the_whole_log_of_a_job_is_saved_to_a_file(
    jobs: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def test() -> None:
        async with opened(jobs, "조수") as session:
            await session.press("enter")
            await session.sees("completed", "done", "transcribe")
            await session.press("w")
            await session.sees("save the log to")
            await session.press("enter")
            await session.until(lambda: any(tmp_path.glob("*.log")), "the file")
            await session.sees("wrote")

    run(test)
    (saved,) = tmp_path.glob("*.log")
    text = saved.read_text(encoding="utf-8")
    lines = [line.text for line in jobs.logs("done").lines]
    assert len(lines) > 3
    for line in lines:
        assert line in text


async def decide(session: Session, key: str, done: Callable[[], bool]) -> None:
    """Press the key of an operation, confirm its dialog, and wait until the row has changed."""
    await session.press(key)
    await session.until(lambda: session.monitor.screen.is_modal, "the dialog")
    await session.press("ctrl+s")
    await session.until(done, f"the operation {key}")


@pytest.mark.contract("Cancel, requeue, mark.")
@pytest.mark.parametrize("key, before, after", OPERATIONS)
def test_jobs_are_cancelled_requeued_and_marked_as_completed(queue: Queue, key: str, before: str, after: str) -> None:
    add_job("/no/such/one.wav", task_id="one", run_at=LATER)
    if before == "failed":
        queue.fail("one", "by hand")

    async def test() -> None:
        async with opened(queue) as session:
            await session.sees("one", "queued" if before == "waiting" else before)
            await decide(session, key, lambda: queue.get("one").status == after)

    run(test)


@pytest.mark.contract("Cancel from the monitor.")
def test_a_running_job_is_asked_to_stop(queue: Queue) -> None:
    add_job("/no/such/one.wav", task_id="one")
    with queue.claim("transcribe", "order") as (lease,):

        async def test() -> None:
            async with opened(queue) as session:
                await session.sees("one", "running")
                await decide(session, "C", lambda: queue.get("one").cancel_requested)

        run(test)
        lease.complete()
    assert queue.get("one").status == "cancelled"


@pytest.mark.contract("Adds work in the background.")
def test_the_form_adds_a_job_that_waits_for_the_daemon(queue: Queue) -> None:
    async def test() -> None:
        async with opened(queue) as session:
            await session.press("n")
            await session.sees("Add a task", "engine")
            fields = session.monitor.screen.query("#fields Input").results(Input)
            first, second = next(fields), next(fields)
            assert "/the/whole/path" in first.placeholder
            assert "empty: that of the settings" in second.placeholder
            first.value, second.value = "/recordings/조수.wav", GPT
            await session.pilot.pause(0.1)
            await session.press("ctrl+s")
            await session.until(lambda: len(queue.find("pipeline:transcribe").tasks) == 1, "the job")
            await session.sees("queued")  # the monitor goes on; it runs nothing itself

    run(test)
    (task,) = queue.find("pipeline:transcribe").tasks
    assert (task.payload["url"], task.payload["engine"], task.status) == ("/recordings/조수.wav", GPT, "waiting")


@pytest.mark.contract("Work goes on when the TUI exits.")
def test_a_job_that_runs_while_the_monitor_ends_is_completed_by_the_daemon(
    models: ModelServer, queue: Queue, home: Path, tmp_path: Path
) -> None:
    models.together = 2  # the endpoint does not answer before a second request, or 300 seconds
    models.patience = 300
    path = str(recording(tmp_path / "t.wav", speech=(0.5,)))
    add_job(path, task_id="t", engine=GPT)

    async def test() -> None:
        async with opened(queue) as session:
            await session.sees("running")

    with works(home) as transcriber:
        transcriber.start()
        until(lambda: models.requests, f"the request\n{transcriber.said()}")
        run(test)
        assert queue.get("t").status == "processing"
        models.release()
        until(lambda: queue.get("t").status == "completed", transcriber.said())


@pytest.mark.contract("The TUI's own `logs/tui-run-<YYYYMMDD-HHMMSS>.log`.")
def test_each_run_of_the_monitor_has_a_log_file_of_its_own(home: Path) -> None:
    import logging

    settings = Settings.of_environment()
    with monitor.run_log(settings, NO_SECRETS) as first, monitor.run_log(settings, NO_SECRETS) as second:
        logging.getLogger("onerow").info("something happened")
    assert first != second
    for path in (first, second):
        assert re.fullmatch(r"tui-run-\d{8}-\d{6}(-2)?\.log", path.name)
        assert path.parent == home / "logs"
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert "something happened" in path.read_text()
    assert not logging.getLogger("onerow").handlers


def test_the_log_of_a_run_has_its_operations(queue: Queue) -> None:
    add_job("/no/such/one.wav", task_id="one", run_at=LATER)

    async def test() -> None:
        async with opened(queue) as session:
            await session.sees("one", "queued")
            await decide(session, "C", lambda: queue.get("one").status == "cancelled")
            await session.sees("cancel: 1 task")

    with monitor.run_log(Settings.of_environment(), queue.masker) as path:
        run(test)
    text = path.read_text(encoding="utf-8")
    assert "onerow cancel one\n" in text
    assert "cancel: 1 task\n" in text
