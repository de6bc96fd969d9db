"""The pipeline and the queue: a playlist becomes its videos, a video is transcribed by main.py."""

import re
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from onerow import (
    Addition,
    BadInput,
    Context,
    Filter,
    Finish,
    Jump,
    Labels,
    Permanent,
    Pipeline,
    Queue,
    Retry,
    Status,
    Tab,
    Task,
    TaskCancelled,
    TaskCompleted,
)
from transcriber.jobs import FLAGS, Job, addition_of, is_playlist, job_of, limit_key_of
from transcriber.playlists import entries_of
from transcriber.problems import EXIT_CODES, Problem, problem_of
from transcriber.program import work_folder
from transcriber.settings import Settings

MAIN = Path(__file__).parent / "run" / "main.py"
LABELS = Labels(
    statuses={"waiting": "queued", "processing": "running", "parked": "queued"},  # parked: a playlist's own job
    tabs=(
        Tab("queued", "status:waiting"),
        Tab("running", "status:processing"),
        Tab("completed", "status:completed"),
        Tab("failed", "status:failed"),
        Tab("cancelled", "status:cancelled"),
    ),
    columns=("task_id", "title", "status", "progress", "payload.engine", "started_at", "error"),
)


def pipeline_of(settings: Settings) -> Pipeline[Job]:
    """Return the pipeline for these settings."""
    transcribe = Pipeline("transcribe", title="{title}", payload=Job, labels=LABELS)
    # Authentication is not retried: a key that is wrong now is wrong in 45 seconds.
    retry = Retry(3, wait=settings.retry_wait, factor=3)

    # One at a time, and without waiting for anything: jobs enter the next phase in their order, the oldest first.
    transcribe.phase(name="order", concurrency=1, retry=retry)(order)
    transcribe.phase(name="playlist", retry=retry, timeout="2m", errors=_class_of)(expand)
    transcribe.command(
        "transcribe",
        [sys.executable, MAIN, "{url}", "{engine?--engine}", "{engine?}", *(f"{{{flag}?--{flag}}}" for flag in FLAGS)],
        cwd=settings.home,
        env=["TRANSCRIBER_*", "OPENAI_*", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PYTHONPATH"],
        set_env={"TRANSCRIBER_HOME": str(settings.home), "OPEN_SCRIBE_TUI_LOG": "{ctx.log_file?}"},
        memory_limit=settings.job_memory,
        exits={code: error_class for error_class, code in EXIT_CODES.items()} | {2: "permanent"},  # 2: wrong arguments
        progress=r"^progress (?P<percent>\d+)% (?P<note>.*)",
        result="file",
        steps=True,
        timeout=settings.timeout,
        retry=retry,
        per_key=settings.heavy_jobs,
    )
    return transcribe


def order(job: Job) -> Jump | None:
    """Send a single video on to its transcription; a list is read first.

    Each job passes here, whether a file, a form or an INSERT into the view added it: here it gets its limit.
    """
    try:
        is_list = is_playlist(job.url)
    except ValueError as error:
        raise Permanent(f"url {job.url[:200]!r}: {error}") from None
    return None if is_list else Jump("transcribe", limit_key=limit_key_of(_engine_of(job)))


def expand(job: Job, ctx: Context) -> Any:
    """Add a job for each video of a list, and wait for them; a single video goes on to its transcription.

    Single videos come here only if a user runs them again from this phase.
    """
    if job.playlist and is_playlist(job.url):
        raise Permanent("a list in a list is not read; add it as a job of its own")
    if not is_playlist(job.url):
        return Jump("transcribe", limit_key=limit_key_of(_engine_of(job)))
    # The list is read once: later attempts, and the run after the wait, find the same videos.
    videos: list[dict[str, str]] = ctx.step("entries", lambda: _entries(job))
    ctx.spawn("transcribe", [addition_of(each, Addition()) for each in _jobs(job, videos)])
    counts = ctx.join()
    return Finish(
        {"videos": counts.total, "completed": counts.completed, "failed": counts.failed, "cancelled": counts.cancelled}
    )


def _entries(job: Job) -> list[dict[str, str]]:
    try:
        return entries_of(job.url)
    except Exception as error:
        problem = problem_of(error)
        if problem is None:
            raise
        raise (Permanent(str(problem)) if problem.error_class == "permanent" else problem) from None


def _jobs(job: Job, videos: Sequence[dict[str, str]]) -> list[Job]:
    given = msgspec.to_builtins(job) | {"job_id": None, "playlist": job.url, "engine": _engine_of(job)}
    return [_child(given | {"title": "", "video_id": ""} | video) for video in videos]


def _child(given: dict[str, Any]) -> Job:
    try:
        return job_of(given, "")
    except BadInput:
        return msgspec.convert(given, Job)  # it fails by itself, and says why; the others go on


def _engine_of(job: Job) -> str:
    return job.engine or Settings.of_environment().engine


def _class_of(error: BaseException) -> str | None:
    return error.error_class if isinstance(error, Problem) else None


def open_queue() -> Queue:
    """Return the queue in TRANSCRIBER_HOME; the same object each time, connected on first use."""
    return _queue_at(Settings.of_environment())


@lru_cache(maxsize=32)
def _queue_at(settings: Settings) -> Queue:
    try:
        for name in ("queue", "logs", "transcript", "audio", "video", "archive"):
            settings.folder(name).mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        reason = f"TRANSCRIBER_HOME: the folder {error.filename} can't be made: {error.strerror}"
        raise BadInput(reason, field="TRANSCRIBER_HOME") from None
    queue = Queue(settings.store, log_files=settings.folder("logs"), secrets=["OPENAI_API_KEY"])
    queue.serve(pipeline_of(settings))

    def remove_work(event: TaskCompleted | TaskCancelled) -> None:
        """Remove the work folder of a job that has ended for good: its results are in other folders."""
        shutil.rmtree(_work_of(event.task, settings), ignore_errors=True)

    queue.on(TaskCompleted, remove_work)
    queue.on(TaskCancelled, remove_work)
    return queue


def remove_left_work() -> None:
    """Remove the work folders of jobs that need them no more: their process died first, or the job was purged."""
    settings = Settings.of_environment()
    # Folders that main.py has made without a worker have short names; they are their user's.
    found = [path for path in settings.folder("work").glob("*") if not re.fullmatch("[0-9a-f]{16}", path.name)]
    if not found:
        return
    statuses = frozenset({Status.WAITING, Status.PROCESSING, Status.FAILED})
    going_on = open_queue().select(Filter(pipeline="transcribe", statuses=statuses))
    needed = {_work_of(task, settings) for task in going_on}
    for path in found:
        if path not in needed:
            shutil.rmtree(path, ignore_errors=True)


def _work_of(task: Task, settings: Settings) -> Path:
    return work_folder(settings, f"{task.task_id}:transcribe:{task.generation}")


def add_job(
    url: str, *, task_id: str | None = None, priority: int = 0, run_at: datetime | str | None = None, **options: Any
) -> Task:
    """Add a job; options are the keys of a queue file, such as engine, title and srt."""
    settings = Settings.of_environment()
    job = job_of({"url": url, **options}, settings.engine)
    given = addition_of(job, Addition(task_id=task_id, priority=priority, run_at=run_at))
    return open_queue().add(
        "transcribe",
        given.payload,
        task_id=task_id,
        title=given.title,
        priority=priority,
        run_at=run_at,
    )
