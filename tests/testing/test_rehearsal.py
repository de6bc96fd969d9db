"""onerow.testing: the real rules and roles with a virtual clock and injected failures."""

import asyncio
import subprocess
import sys
import textwrap
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onerow import (
    AsyncContext,
    Context,
    Item,
    Permanent,
    Pipeline,
    Queue,
    RateLimited,
    Retry,
    Snooze,
    Status,
    TaskCompleted,
    UnknownName,
)
from onerow.testing import Rehearsal

pytest_plugins = ["pytester"]


def studio() -> Pipeline:
    videos = Pipeline("videos", title="{topic}")
    videos.wait_until("schedule", field="at")

    @videos.phase(retry=Retry(3, wait="5s", factor=3, jitter=0))
    def script(job: Any) -> Any:
        return f"script of {job['topic']}"

    videos.wait_for("image", signal="images.ready", timeout="3d")

    @videos.phase
    async def youtube(job: Any, script: Any, image: Any) -> Any:
        await asyncio.sleep(0)
        return [script, image]

    return videos


def test_a_pipeline_runs_in_virtual_time(rehearsal: Rehearsal) -> None:
    at = rehearsal.now + timedelta(days=2)
    task = rehearsal.add(studio(), {"topic": "tides", "at": at.isoformat()})
    assert rehearsal.run() == 0
    assert rehearsal.get(task).phase == "schedule"
    waiting = rehearsal.run_until(task, "image")
    assert (waiting.awaiting, rehearsal.now) == ("signal:images.ready", at)
    rehearsal.queue.signal(task.task_id, "images.ready", ["a.png"])
    done = rehearsal.run_until(task)
    assert (done.status, done.result) == (Status.COMPLETED, ["script of tides", ["a.png"]])


def test_time_advances_over_retries_but_not_over_parked_tasks(rehearsal: Rehearsal) -> None:
    rehearsal.fail("script", ConnectionError("no net"), times=2)
    began = rehearsal.now
    task = rehearsal.add(studio(), {"topic": "tides"})
    assert rehearsal.run_until_idle() == 3
    found = rehearsal.get(task)
    assert (found.phase, found.awaiting, rehearsal.now - began) == (
        "image",
        "signal:images.ready",
        timedelta(seconds=20),
    )
    assert [entry.error_class for entry in found.history if entry.error] == ["network", "network"]
    rehearsal.forward("3d")
    assert (rehearsal.get(task).status, rehearsal.get(task).error_class) == (Status.FAILED, "timeout")


def test_a_permanent_failure_and_a_timeout_can_be_injected(rehearsal: Rehearsal) -> None:
    rehearsal.fail("videos.script", Permanent("no such topic"))
    one = rehearsal.add(studio(), {"topic": "a"})
    assert rehearsal.run_until(one, status="failed").error == "no such topic"
    rehearsal.time_out("script")
    two = rehearsal.queue.add("videos", {"topic": "b"})
    assert rehearsal.run_until(two, status="failed").error_class == "timeout"


def test_work_is_repeated_if_the_worker_dies_after_it(rehearsal: Rehearsal) -> None:
    sent: list[str] = []
    mails = Pipeline("mails")

    @mails.phase(lease="30s")
    def send(job: str) -> str:
        sent.append(job)
        return "sent"

    rehearsal.crash_after("send")
    began = rehearsal.now
    task = rehearsal.add(mails, "hello")
    assert rehearsal.run() == 1
    assert rehearsal.get(task).status is Status.PROCESSING
    done = rehearsal.run_until(task)
    assert (done.result, done.rescue_count, sent) == ("sent", 1, ["hello", "hello"])
    assert rehearsal.now - began == timedelta(seconds=30)
    assert [entry.what for entry in done.history] == ["rescued", "completed"]


def test_a_step_is_not_repeated_if_the_worker_dies_after_it(rehearsal: Rehearsal) -> None:
    ran: list[str] = []
    films = Pipeline("films")

    @films.phase
    async def fetch(job: Any, ctx: AsyncContext) -> Any:
        await ctx.step("download", lambda: ran.append("download"))
        await ctx.step("cut", lambda: ran.append("cut"))
        ran.append("end")

    rehearsal.crash_after("fetch", step="download")
    assert rehearsal.run_until(rehearsal.add(films)).status is Status.COMPLETED
    assert ran == ["download", "cut", "end"]


def test_a_task_that_kills_its_worker_and_then_its_own_process_three_times_ends_failed(rehearsal: Rehearsal) -> None:
    rehearsal.crash_before("script", times=4)
    task = rehearsal.run_until(rehearsal.add(studio(), {"topic": "a"}), status="failed")
    assert (task.error_class, task.crash_count) == ("crash", 3)
    assert [entry.what for entry in task.history if entry.phase == "script"] == [
        "rescued",
        "failed",
        "failed",
        "failed",
    ]


def test_children_batches_limits_and_waits_work(rehearsal: Rehearsal) -> None:
    sizes: list[int] = []
    parts, whole = Pipeline("parts"), Pipeline("whole")

    @parts.batch("embed", size=3)
    def embed(items: list[Item[int]]) -> None:
        sizes.append(len(items))
        for item in items:
            item.done(item.payload * 2)

    @whole.phase
    def split(job: Any, ctx: Context) -> Any:
        ctx.spawn(parts, range(7))
        ctx.join(all_must_succeed=True)
        approved = ctx.wait("approved", timeout="1d")
        return [sum(child.result for child in ctx.children()), approved]

    rehearsal.serve(parts)
    task = rehearsal.add(whole)
    rehearsal.run_until_idle()
    assert rehearsal.get(task).awaiting == "signal:approved"
    assert sizes == [3, 3, 1]
    rehearsal.queue.signal(task.task_id, "approved", "yes")
    assert rehearsal.run_until(task).result == [42, "yes"]


def test_time_advances_over_rates_and_holds(rehearsal: Rehearsal) -> None:
    calls = Pipeline("calls")
    asked: list[int] = []

    @calls.phase(rate="2/min")
    def call(job: int) -> None:
        asked.append(job)
        if len(asked) == 1:
            raise RateLimited("10m", scope="phase")

    began = rehearsal.now
    rehearsal.serve(calls).queue.add_many(calls, range(4))
    rehearsal.run_until_idle()
    assert sorted(asked) == [0, 0, 1, 2, 3]
    assert rehearsal.now - began >= timedelta(minutes=11)


def test_schedules_fire_when_time_advances(rehearsal: Rehearsal) -> None:
    reports = Pipeline("reports")

    @reports.phase
    def write(job: Any) -> Any:
        return job

    reports.cron("0 9 * * 1-5", tz="Asia/Seoul", payload="daily")
    rehearsal.serve(reports)
    rehearsal.run_until_idle()
    rehearsal.forward("7d")
    tasks = rehearsal.queue.find(order="oldest").tasks
    assert len(tasks) == 5
    assert {(task.result, task.scheduled_time.hour) for task in tasks if task.scheduled_time} == {("daily", 0)}


def test_a_phase_can_be_stubbed(rehearsal: Rehearsal) -> None:
    films = Pipeline("films")

    @films.phase
    def render(job: Any) -> Any:
        raise AssertionError("never called")

    films.command("encode", ["/no/such/program"])

    @films.phase
    def publish(job: Any, render: Any, encode: Any) -> Any:
        return [render, encode]

    rehearsal.stub("render", lambda job: f"frames of {job}").stub("films.encode", "film.mp4")
    assert rehearsal.run_until(rehearsal.add(films, "tides")).result == ["frames of tides", "film.mp4"]


def test_a_snoozing_handler_and_its_log(rehearsal: Rehearsal) -> None:
    films = Pipeline("films")

    @films.phase
    def check(job: Any, ctx: Context) -> None:
        ctx.log(f"attempt {ctx.attempt}")
        if ctx.attempt < 3:
            raise Snooze("1h")

    task = rehearsal.run_until(rehearsal.add(films))
    assert [line.text for line in rehearsal.queue.logs(task.task_id).lines] == ["attempt 1", "attempt 2", "attempt 3"]


def test_the_apps_queue_can_be_borrowed_and_is_restored(tmp_path: Path) -> None:
    queue = Queue(f"sqlite:///{tmp_path}/app.db")
    films = Pipeline("films")

    @films.phase
    def fetch(job: Any) -> None:
        if job == "first":
            queue.add(films, "second")  # the app's own queue

    queue.serve(films)
    heard: list[str] = []
    queue.on(TaskCompleted, lambda event: heard.append(event.task.payload))
    with Rehearsal().borrow(queue) as rehearsal:
        queue.add(films, "first")
        assert rehearsal.run_until_idle() == 2
        assert len(queue.find().tasks) == 2
        assert heard == ["first", "second"]
    assert queue.find().tasks == []
    queue.close()


def test_run_until_raises_if_the_task_does_not_arrive(rehearsal: Rehearsal) -> None:
    task = rehearsal.add(studio(), {"topic": "tides"})
    with pytest.raises(AssertionError, match="is waiting at image"):
        rehearsal.run_until(task, "youtube")


def test_run_until_raises_with_the_error_of_a_task_that_fails(rehearsal: Rehearsal) -> None:
    films = Pipeline("films")

    @films.phase
    def fetch(job: Any) -> Any:
        return job["url"]

    task = rehearsal.add(films, {})
    with pytest.raises(AssertionError, match=rf"^task {task.task_id} failed at fetch: .*url") as failed:
        rehearsal.run_until(task)
    error = failed.value.__cause__
    assert isinstance(error, KeyError)
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_frame.f_code.co_name == "fetch"  # the first frame that is shown is the handler's


def test_run_until_a_phase_raises_if_the_task_fails_before_it(rehearsal: Rehearsal) -> None:
    rehearsal.fail("script", Permanent("no such topic"))
    task = rehearsal.add(studio(), {"topic": "tides", "at": rehearsal.now.isoformat()})
    with pytest.raises(AssertionError, match=rf"^task {task.task_id} failed at script: no such topic$"):
        rehearsal.run_until(task, "youtube")


@pytest.mark.parametrize("status", ["failed", Status.FAILED])
def test_run_until_a_task_has_failed(rehearsal: Rehearsal, status: Status | str) -> None:
    rehearsal.fail("script", Permanent("no such topic"))
    task = rehearsal.add(studio(), {"topic": "tides", "at": rehearsal.now.isoformat()})
    assert rehearsal.run_until(task, status=status).error == "no such topic"


def test_run_until_returns_a_cancelled_task(rehearsal: Rehearsal) -> None:
    task = rehearsal.add(studio(), {"topic": "tides"})
    rehearsal.queue.cancel(task.task_id)
    assert rehearsal.run_until(task).status is Status.CANCELLED


def test_run_until_refuses_a_misspelt_status(rehearsal: Rehearsal) -> None:
    task = rehearsal.add(studio(), {"topic": "tides"})
    with pytest.raises(UnknownName, match="no status 'faild'\ndid you mean 'failed'"):
        rehearsal.run_until(task, status="faild")


def test_the_pipeline_of_children_is_served(rehearsal: Rehearsal) -> None:
    pages, albums = Pipeline("pages"), Pipeline("albums")
    pages.phase(name="fetch")(lambda job: job * 10)

    @albums.phase
    def fronts(job: Any, ctx: Context) -> Any:
        ctx.spawn(pages, [1, 2])
        ctx.join()

    @albums.phase
    async def backs(job: Any, ctx: AsyncContext) -> Any:
        await ctx.spawn(pages, [3])
        await ctx.join()
        return sorted([child.result async for child in ctx.children()])

    assert rehearsal.run_until(rehearsal.add(albums)).result == [10, 20, 30]


def test_the_test_kit_needs_no_pytest() -> None:
    code = """
        import sys
        sys.modules["pytest"] = None
        from onerow import Pipeline
        from onerow.testing import Rehearsal
        films = Pipeline("films")
        films.phase(name="fetch")(lambda job: job)
        with Rehearsal() as rehearsal:
            assert rehearsal.run_until(rehearsal.add(films, 1)).result == 1
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=900)


def test_no_thread_is_left_running(rehearsal: Rehearsal) -> None:
    before = threading.active_count()
    with Rehearsal() as another:
        task = another.add(studio(), {"topic": "a"})
        another.run_until(task, "image")
        another.queue.signal(task.task_id, "images.ready")
        another.run_until(task)
    assert threading.active_count() == before


def test_the_fixture_comes_with_the_installed_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from onerow import Pipeline

        def test_it(rehearsal):
            films = Pipeline("films")
            films.phase(name="fetch")(lambda job: job)
            assert rehearsal.run_until(rehearsal.add(films, 1)).result == 1
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "plan",
    [
        lambda rehearsal: rehearsal.fail("scirpt", ConnectionError()),
        lambda rehearsal: rehearsal.time_out("videos.scirpt"),
        lambda rehearsal: rehearsal.crash_before("scirpt"),
        lambda rehearsal: rehearsal.crash_after("scirpt", step="download"),
        lambda rehearsal: rehearsal.stub("scirpt"),
    ],
)
def test_a_misspelt_phase_is_refused(rehearsal: Rehearsal, plan: Any) -> None:
    rehearsal.serve(studio())
    with pytest.raises(UnknownName, match=r"scirpt'\ndid you mean '(videos\.)?script'\?"):
        plan(rehearsal)


def test_a_misspelt_phase_is_refused_when_the_pipeline_is_served_later(rehearsal: Rehearsal) -> None:
    rehearsal.fail("scirpt", ConnectionError())
    rehearsal.add(studio(), {"topic": "tides", "at": rehearsal.now.isoformat()})
    with pytest.raises(UnknownName, match="did you mean 'script'"):
        rehearsal.run()


def test_run_until_refuses_a_misspelt_phase(rehearsal: Rehearsal) -> None:
    task = rehearsal.add(studio(), {"topic": "tides", "at": rehearsal.now.isoformat()})
    with pytest.raises(UnknownName, match="did you mean 'image'"):
        rehearsal.run_until(task, "imgae")


def test_the_fixture_is_there_if_the_conftest_imports_rehearsal(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("from onerow.testing import Rehearsal")
    pytester.makepyfile("def test_it(rehearsal):\n    assert rehearsal.run() == 0")
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)
