"""Opens the queue of the studio in STUDIO_HOME."""

from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from onerow import Queue
from video_studio.settings import Settings


def open_queue() -> Queue:
    """Return the queue in STUDIO_HOME; the same object each time, connected on first use."""
    return _queue_at(Settings.of_environment().database)


@lru_cache(maxsize=32)
def _queue_at(database: Path) -> Queue:
    from video_studio.pipeline import videos

    database.parent.mkdir(parents=True, exist_ok=True)
    return Queue(f"sqlite:///{quote(str(database))}").serve(videos)
