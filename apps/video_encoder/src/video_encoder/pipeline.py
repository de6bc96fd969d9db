"""The phases of a video: encode → check → delete_raw. From `delete_raw` on it is READY."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from onerow import BadInput, Context, Permanent, Retry, Snooze
from video_encoder import ladder
from video_encoder.bucket import HLS, Bucket, is_unavailable
from video_encoder.checking import check_ladder
from video_encoder.ladder import MASTER, Ladder
from video_encoder.opening import Job, videos
from video_encoder.probing import probe_upload
from video_encoder.settings import Settings
from video_encoder.work_folder import work_folder

__all__ = ["Job", "videos"]


def _settings() -> Settings:
    """Return the settings, or the defaults if a variable is wrong: the command that needs it says so, not an import."""
    try:
        return Settings.of_environment()
    except BadInput:
        return Settings.of_environment({})


_SETTINGS = _settings()
_RETRY = Retry(3, wait=_SETTINGS.retry_wait)


@contextmanager
def _bucket(settings: Settings) -> Iterator[Bucket]:
    """Yield the bucket; while it is unavailable the phase is held, which costs no retry."""
    try:
        yield Bucket(settings)
    except Exception as error:
        if is_unavailable(error):
            raise Snooze(settings.retry_wait, f"the bucket is unavailable: {error}", scope="phase") from None
        raise


@videos.phase(timeout=_SETTINGS.timeout, lease=_SETTINGS.lease, retry=_RETRY, isolate="process")
def encode(job: Job, ctx: Context) -> Ladder:
    """Make the ladder of the raw object, and store it in the bucket."""
    settings = Settings.of_environment()
    with _bucket(settings) as bucket, work_folder(settings.work, ctx.task_id) as folder:
        if (size := bucket.size(job.key)) > settings.max_size:
            raise Permanent(f"{job.name} has {size:,} bytes; ENCODER_MAX_SIZE allows {settings.max_size:,}")
        source = bucket.fetch(job.key, folder / "source")
        media = probe_upload(source, job.name)
        ctx.log(f"{media.width}x{media.height}, {media.seconds:g} s, {media.video}, sound: {media.audio or 'none'}")
        report = partial(_report, ctx, media.seconds)
        steps = ladder.encode(source, media, settings.heights, folder / "hls", report)
        sizes = _store(bucket, folder / "hls", f"{HLS}{ctx.task_id}/", ctx)
    ctx.log(f"{', '.join(step.name for step in steps)}: {len(sizes)} objects, {sum(sizes.values()):,} bytes")
    return Ladder(f"{HLS}{ctx.task_id}/", steps, media.seconds, bool(media.audio), sizes)


@videos.phase(timeout="1h", lease=_SETTINGS.lease, retry=_RETRY, isolate="process")
def check(job: Job, encode: Ladder, ctx: Context) -> int:
    """Check the stored ladder with ffprobe; return the number of its segments."""
    settings = Settings.of_environment()
    with _bucket(settings) as bucket, work_folder(settings.work, ctx.task_id) as folder:
        return check_ladder(encode, bucket, folder)


@videos.phase(lease=_SETTINGS.lease, retry=_RETRY)
def delete_raw(job: Job) -> None:
    """Delete the raw object; again after a crash, and then it is gone already."""
    with _bucket(Settings.of_environment()) as bucket:
        bucket.delete([job.key])


def _report(ctx: Context, total: float, seconds: float) -> None:
    ctx.check()
    ctx.progress(round(min(seconds, total), 1), round(total, 1), "seconds")


def _store(bucket: Bucket, folder: Path, prefix: str, ctx: Context) -> dict[str, int]:
    """Upload a folder, its master playlist last; return the sizes by name. Objects of earlier attempts are replaced."""
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    ordered = sorted(files, key=lambda name: (name == MASTER, name))
    for name in ctx.track(ordered, note="objects"):
        bucket.put(files[name], prefix + name)
    bucket.delete(prefix + name for name in bucket.sizes(prefix) if name not in files)
    return {name: path.stat().st_size for name, path in files.items()}
