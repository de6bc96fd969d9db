"""Uploads: an object below raw/, then a row, then a message that names it."""

from pathlib import Path, PurePosixPath
from uuid import uuid4

import msgspec

from onerow import BadInput, Task
from video_encoder.bucket import RAW, Bucket, NoObject
from video_encoder.opening import Job, checked_id, open_queue, videos
from video_encoder.sender import send_message
from video_encoder.settings import Settings

URL_SECONDS = 3600
_LONGEST_NAME = 200  # characters


class Upload(msgspec.Struct, frozen=True):
    """Where to PUT a video, for an hour, without credentials."""

    video_id: str
    key: str
    url: str


def create_upload(name: str, video_id: str | None = None) -> Upload:
    """Return a presigned upload. After the PUT call `uploaded`, or let the bucket send its event to the queue."""
    video_id = _new_id() if video_id is None else checked_id(video_id)
    key = _key(video_id, name)
    return Upload(video_id, key, Bucket(Settings.of_environment()).upload_url(key, URL_SECONDS))


def uploaded(video_id: str) -> Task:
    """Add the row of an upload that is in the bucket, then send its message; the row that exists stays as it is."""
    bucket = Bucket(Settings.of_environment())
    prefix = f"{RAW}{checked_id(video_id)}/"
    names = sorted(bucket.sizes(prefix))
    if not names:
        raise BadInput(f"nothing was uploaded as video {video_id}", fix="PUT it first", field="video_id")
    _, job = job_of_key(prefix + names[0])
    return _add(video_id, job)


def upload_file(path: Path, video_id: str | None = None) -> Task:
    """Upload a file, add its row, then send its message."""
    video_id = _new_id() if video_id is None else checked_id(video_id)
    job = Job(_key(video_id, path.name), path.name)
    settings = Settings.of_environment()
    settings.needed("bucket", "queue_url")  # before the file is uploaded
    bucket = Bucket(settings)
    try:
        bucket.size(job.key)
    except NoObject:
        bucket.put(path, job.key)
    return _add(video_id, job)


def job_of_key(key: str) -> tuple[str, Job]:
    """Return the id of a video and its job from the key raw/ID/NAME; raise BadInput for another key."""
    parts = PurePosixPath(key).parts
    if len(parts) != 3 or f"{parts[0]}/" != RAW:
        raise BadInput(f"{key!r} is not the key of an upload", fix=f"write it like {RAW}ID/NAME", field="key")
    return parts[1], Job(key, parts[2])


def _add(video_id: str, job: Job) -> Task:
    task = open_queue().add(videos, job, task_id=video_id)
    send_message(video_id)
    return task


def _key(video_id: str, name: str) -> str:
    clean = PurePosixPath(name.replace("\\", "/")).name
    if not clean or clean == ".." or not clean.isprintable() or len(clean) > _LONGEST_NAME:
        raise BadInput(
            f"{name[:100]!r} is not the name of a file",
            fix=f"use 1 to {_LONGEST_NAME} printable characters",
            field="name",
        )
    return f"{RAW}{video_id}/{clean}"


def _new_id() -> str:
    return uuid4().hex[:16]
