"""`onerow worker` with the app, killed with kill -9 at the point that the file KILL_FILE names, once."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ai_tagger import pipeline
from ai_tagger.app import queue, tagging
from onerow import Item

__all__ = ["queue", "tagging"]

_FILE = Path(os.environ["KILL_FILE"])


def _die_at(point: str) -> None:
    if _FILE.exists() and _FILE.read_text() == point:
        _FILE.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def _deadly(function: Callable[..., Any], before: str, after: str) -> Callable[..., Any]:
    async def call(*args: Any) -> Any:
        _die_at(before)
        result = await function(*args)
        _die_at(after)
        return result

    return call


def _deadly_done(done: Callable[..., None]) -> Callable[..., None]:
    def call(self: Item[Any], result: Any = None) -> None:
        done(self, result)
        _die_at("settled, not written")

    return call


pipeline._read = _deadly(pipeline._read, "claimed, nothing read", "")
pipeline._record = _deadly(pipeline._record, "asked, nothing recorded", "recorded, not settled")
Item.done = _deadly_done(Item.done)  # type: ignore[method-assign]
