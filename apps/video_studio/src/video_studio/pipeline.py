"""The phases of the pipeline: five, in order, each implemented in its own module."""

import msgspec

from onerow import AsyncContext, BadInput, Context, Permanent, Retry
from video_studio import script as scripts
from video_studio import uploads
from video_studio.film import Film, make_film
from video_studio.library import VideoTask, find_video
from video_studio.opening import Job, videos
from video_studio.places import safe_name
from video_studio.publish import Published, publish
from video_studio.script import Script
from video_studio.settings import Settings
from video_studio.writer import ask_for_script

__all__ = ["Job", "next_phase", "videos"]

_TIMEOUT = Settings.of_environment().phase_timeout
_RETRY = Retry(3, wait=Settings.of_environment().retry_wait)


videos.wait_until("schedule", field="scheduled_time")


@videos.phase(concurrency=1, timeout=_TIMEOUT, retry=_RETRY)
async def script(job: Job, ctx: AsyncContext) -> Script:
    """Write the script; draw the pictures too if the task asks for that."""
    task, settings = _joined(ctx), Settings.of_environment()
    if settings.endpoint is None:
        written = scripts.from_template(task.topic)
    else:
        written = await ask_for_script(settings.endpoint, task.topic)
    ctx.log(f"script: {written.title!r}, {len(written.scenes)} scenes, {written.seconds:g} s")
    if task.draw:
        await uploads.draw(ctx.task_id, written, settings, ctx.idempotency_key)
    return written


# An upload or a crawl ends this wait phase; while it waits, nothing runs and no slot is held.
videos.wait_for("image", signal=uploads.SIGNAL, timeout="30d")


@videos.phase(concurrency=1, timeout=_TIMEOUT, retry=_RETRY, isolate="process")
def video(job: Job, script: Script, image: list[str] | None, ctx: Context) -> Film:
    """Make the mp4 from the script and its pictures."""
    _joined(ctx)
    settings = Settings.of_environment()
    try:
        pictures = uploads.pictures(ctx.task_id, image, settings)
    except BadInput as error:
        raise Permanent(str(error)) from None
    return make_film(script, pictures, settings, ctx)


@videos.phase(concurrency=1, timeout=_TIMEOUT, retry=msgspec.structs.replace(_RETRY, max_retries=8, factor=2))
async def youtube(job: Job, script: Script, video: Film, ctx: AsyncContext) -> Published:
    """Publish the film once, however often the phase runs."""
    task, settings = _joined(ctx), Settings.of_environment()
    return await publish(task, script, video, settings, ctx)


def next_phase(phase: str) -> str | None:
    """Return the next phase; None after youtube. Raise UnknownName for an unknown phase."""
    following = videos.plan.after(phase)
    return None if following is None else following.name


def _joined(ctx: AsyncContext | Context) -> VideoTask:
    """Return the app's row of a task; raise a permanent error if there is none."""
    try:
        safe_name(ctx.task_id)
    except BadInput as error:
        raise Permanent(str(error)) from None
    task = find_video(ctx.task_id)
    if task is None:
        raise Permanent(
            f"task {ctx.task_id} has no row in the table `task`, so its topic is unknown; cancel it, "
            f"or run: studio add TOPIC --id {ctx.task_id}, and then: studio queue retry {ctx.task_id}"
        )
    return task
