"""Publishing to a folder or to YouTube: once per task and generation, however often it is tried."""

import asyncio

from onerow import AsyncContext, Permanent
from video_studio.film import Film
from video_studio.library import VideoTask
from video_studio.places import inside
from video_studio.publish.folder import publish_to_folder
from video_studio.publish.published import Published
from video_studio.publish.youtube import upload_to_youtube
from video_studio.script import Script
from video_studio.settings import Settings

__all__ = ["Published", "publish"]


async def publish(task: VideoTask, script: Script, film: Film, settings: Settings, ctx: AsyncContext) -> Published:
    """Publish a film to the target in the settings."""
    file = inside(settings.films, film.file, what="video")
    if not file.is_file() or file.stat().st_size != film.size:
        raise Permanent(
            f"the video {film.file} is gone from {settings.films}, or is another; "
            f"make it anew: studio queue replay {task.task_id} --phase video"
        )
    if settings.youtube is None:
        done = await asyncio.to_thread(publish_to_folder, file, film, script, settings.published, ctx.idempotency_key)
    else:
        done = await upload_to_youtube(file, film, script, settings.youtube, ctx)
    ctx.log(f"published: {done.where}")
    return done
