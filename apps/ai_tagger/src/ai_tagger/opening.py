"""The queue of the tagger."""

from functools import lru_cache

from ai_tagger.pipeline import tagging
from ai_tagger.settings import Settings
from onerow import Queue


def open_queue(settings: Settings | None = None) -> Queue:
    """Return the queue in the tagger's database; the same object each time, connected on first use."""
    return _queue_at((settings or Settings.of_environment()).database_url)


@lru_cache(maxsize=32)
def _queue_at(url: str) -> Queue:
    return Queue(url, secrets=["TAGGER_API_KEY", "TAGGER_DATABASE_URL"]).serve(tagging)
