"""The logger 'onerow': every worker writes the same lines, with fields, and installs no handler."""

import asyncio
import logging
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from onerow import Permanent, Pipeline, Queue, Status, TaskCompleted, TaskRetried
from onerow.asgi import lifespan
from onerow.engine.events.events import TasksStranded
from onerow.engine.events.log import describe
from onerow.engine.output import echo
from tests.engine.kit import ON_SQLITE, ended, work
from tests.samples import NOW, a_task


def posts() -> Pipeline:
    pipeline = Pipeline("posts")

    @pipeline.phase
    def tag(job: dict[str, str]) -> None:
        print(f"tagging {job['name']}")
        logging.getLogger("mine").warning("from logging")
        if job["name"] == "bad":
            raise Permanent("no such \x1b[2Jpost sk-abcdefghijklmnopqrstuvwx")

    return pipeline


def records(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "event", "") == event]


@ON_SQLITE
def test_a_worker_in_a_program_logs_a_failed_task_with_its_fields(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    task = queue.add(pipeline := posts(), {"name": "bad"})
    worker = work(queue, pipeline)
    (record,) = records(caplog, "TaskFailed")
    fields = vars(record)
    assert (record.name, record.levelname) == ("onerow", "ERROR")
    assert fields["task_id"] == task.task_id
    assert (fields["pipeline"], fields["phase"], fields["attempt"]) == ("posts", "tag", 1)
    assert (fields["worker"], fields["error_class"]) == (worker.name, "permanent")
    assert "sk-***" in record.getMessage()
    assert "\x1b" not in record.getMessage() + fields["error"]


@pytest.mark.parametrize(
    "wait, said",
    [
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(seconds=1), "1s"),
        (timedelta(seconds=5, milliseconds=312), "5s"),
        (timedelta(minutes=90), "1h30m"),
    ],
)
def test_the_line_of_a_retry_says_when_it_runs_again(wait: timedelta, said: str) -> None:
    task = a_task(title="Tides", error="ConnectionError: refused", updated_at=NOW, run_at=NOW + wait)
    assert describe(TaskRetried(task)) == (
        logging.WARNING, f"task t1 “Tides” failed in script and runs again in {said}: ConnectionError: refused"
    )  # fmt: skip


@ON_SQLITE
def test_a_worker_whose_code_lacks_a_phase_reports_the_tasks_that_wait_there(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    older, newer = Pipeline("posts"), Pipeline("posts")
    for pipeline, names in ((older, ("tag", "check", "send")), (newer, ("tag", "send"))):
        for name in names:
            pipeline.phase(name=name)(lambda job: None)
    queue.publish(older)
    first, second, other = (queue.add(older, task_id=name) for name in ("a", "b", "c"))
    queue.finish(first.task_id, phase_only=True)
    work(Queue(queue.store), newer)
    (record,) = records(caplog, "TasksStranded")
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        "1 task waits at posts.check, which this code does not have: put renamed_from='check' on the phase that "
        "replaces it, or start a worker with the old code"
    )
    fields = vars(record)
    assert (fields["pipeline"], fields["phase"], fields["count"]) == ("posts", "check", 1)
    assert {queue.get(each.task_id).status for each in (second, other)} == {Status.COMPLETED}
    caplog.clear()
    work(Queue(queue.store), newer)
    assert records(caplog, "TasksStranded") == [], "once, by the worker that changed the definition"
    assert describe(TasksStranded("posts", "check", 1_200)) == (
        logging.WARNING,
        "1,200 tasks wait at posts.check, which this code does not have: put renamed_from='check' on the phase that "
        "replaces it, or start a worker with the old code",
    )


@ON_SQLITE
def test_a_phase_that_was_renamed_strands_no_task(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    older, newer = Pipeline("posts"), Pipeline("posts")
    older.phase(name="tag")(lambda job: None)
    newer.phase(name="label", renamed_from="tag")(lambda job: None)
    queue.publish(older)
    task = queue.add(older)
    work(Queue(queue.store), newer)
    assert records(caplog, "TasksStranded") == []
    assert queue.get(task.task_id).status is Status.COMPLETED


@ON_SQLITE
def test_two_workers_of_one_queue_write_each_line_once(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.log_lines.start("another")
    queue.add(pipeline := posts(), {"name": "bad"})
    work(queue, pipeline)
    queue.log_lines.stop("another")
    assert len(records(caplog, "TaskFailed")) == 1


@ON_SQLITE
def test_a_hook_that_raises_is_logged_with_its_traceback(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    def notify(event: TaskCompleted) -> None:
        raise RuntimeError("no mail server")

    queue.on(TaskCompleted, notify)
    queue.add(pipeline := posts(), {"name": "good"})
    work(queue, pipeline)
    (record,) = records(caplog, "HookFailed")
    assert vars(record)["error_class"] == "RuntimeError"
    assert re.findall(r"File .* in (.*)", record.exc_text or "") == ["notify"], "no frames of onerow before it"


@ON_SQLITE
def test_a_worker_in_an_asgi_application_logs_the_same(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    pipeline = posts()

    async def serve() -> None:
        async with lifespan(queue, pipeline)(None):
            task = queue.add(pipeline, {"name": "bad"})
            await asyncio.to_thread(ended, queue, task)

    asyncio.run(serve())
    assert len(records(caplog, "TaskFailed")) == 1


@ON_SQLITE
def test_output_of_handlers_is_shown_once_with_the_short_id_of_the_task(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    task = queue.add(pipeline := posts(), {"name": "good"})
    work(queue, pipeline, show_output=True)
    shown = [record.getMessage() for record in caplog.records if record.name == "onerow.output"]
    assert shown == [f"{task.task_id[-8:]} tagging good"]
    assert [record.name for record in caplog.records if "from logging" in record.getMessage()] == ["mine"]


@ON_SQLITE
def test_output_is_not_shown_by_default(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    queue.add(pipeline := posts(), {"name": "good"})
    work(queue, pipeline)
    assert not [record for record in caplog.records if record.name == "onerow.output"]


@ON_SQLITE
def test_a_flood_of_output_is_bounded_where_it_is_shown(
    queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(echo, "PER_SECOND", 0)
    caplog.set_level(logging.INFO)
    pipeline = Pipeline("flood")

    @pipeline.phase
    def speak(job: None) -> None:
        print("\n".join(map(str, range(5_000))))

    task = queue.add(pipeline)
    work(queue, pipeline, show_output=True)
    shown = [record.getMessage() for record in caplog.records if record.name == "onerow.output"]
    assert len(shown) <= echo.BURST + 10
    assert any("lines of output are left out here" in line for line in shown)
    assert queue.logs(task.task_id, tail=1).lines[-1].text == "4999", "the task log has all of it"


def test_a_program_that_configures_no_logging_sees_failures_on_standard_error(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import logging\n"
        "from onerow import Permanent, Pipeline, Queue, Worker\n"
        "posts = Pipeline('posts')\n"
        "@posts.phase\n"
        "def tag(job):\n"
        "    raise Permanent('no such post')\n"
        "queue = Queue('memory://')\n"
        "queue.add(posts, {})\n"
        "Worker(queue, [posts], until_idle=True).run()\n"
        "assert not logging.getLogger().handlers and not logging.getLogger('onerow').handlers\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=900, check=True)
    assert done.stderr.count("no such post") == 1
