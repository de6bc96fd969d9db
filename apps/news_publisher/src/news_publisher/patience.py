"""Retries writes while the database is unavailable."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from pymongo.errors import ConnectionFailure

from onerow import StoreUnavailable

log = logging.getLogger("news_publisher")
Answer = TypeVar("Answer")


def patiently(call: Callable[..., Answer], *args: object) -> Answer:
    """Retry a call until the database answers, even while stopping: giving up would leave the outcome unknown."""
    pause = 0.05
    while True:
        try:
            return call(*args)
        except (StoreUnavailable, ConnectionFailure) as error:
            log.warning("the database is away, trying again: %s", type(error).__name__)
            time.sleep(pause)
            pause = min(pause * 2, 1.0)
