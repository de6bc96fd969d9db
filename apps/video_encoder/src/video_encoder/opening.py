"""The pipeline and the queue of the encoder. `video_encoder.pipeline` adds the phases to the pipeline."""

import re
from functools import lru_cache

import msgspec

from onerow import BadInput, Pipeline, Queue
from video_encoder.settings import Settings

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Job(msgspec.Struct, frozen=True):
    """The payload of a video's task: its object, and the name that its uploader gave it."""

    key: str
    name: str


videos = Pipeline("videos", payload=Job, title="{name}")


def open_queue() -> Queue:
    """Return the queue at ENCODER_STORE; the same object each time, connected on first use."""
    return _queue_at(Settings.of_environment().store)


def checked_id(video_id: str) -> str:
    """Return a video's id if it can be part of a key and of a path; else raise BadInput."""
    if not _ID.fullmatch(video_id):
        raise BadInput(
            f"{video_id[:100]!r} is not the id of a video",
            fix="use 1 to 64 letters, digits, '-' and '_'",
            field="video_id",
        )
    return video_id


@lru_cache(maxsize=32)
def _queue_at(store: str) -> Queue:
    return Queue(store).serve(videos)
