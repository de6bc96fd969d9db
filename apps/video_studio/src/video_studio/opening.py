"""The pipeline and the queue of the studio. `video_studio.pipeline` adds the phases to the pipeline."""

from datetime import datetime
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

import msgspec

from onerow import Pipeline, Queue
from video_studio.settings import Settings


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload of a video's task; all other data is in the app's tables."""

    scheduled_time: datetime | None = None


videos = Pipeline("videos", payload=Job)


def open_queue() -> Queue:
    """Return the queue in STUDIO_HOME; the same object each time, connected on first use."""
    return _queue_at(Settings.of_environment().database)


@lru_cache(maxsize=32)
def _queue_at(database: Path) -> Queue:
    database.parent.mkdir(parents=True, exist_ok=True)
    return Queue(f"sqlite:///{quote(str(database))}").serve(videos)
