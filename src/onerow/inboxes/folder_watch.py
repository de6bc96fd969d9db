"""Notifications of new files, if watchfiles is installed; without it a folder is read at an interval."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path


def watch_folder(folder: Path, suffixes: tuple[str, ...], notify: Callable[[], None]) -> Callable[[], None] | None:
    """Call `notify` after a file appears or changes; return a function that ends it, or None without watchfiles."""
    try:
        from watchfiles import Change, watch
    except ModuleNotFoundError:
        return None
    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # else it logs each change
    stop = threading.Event()

    def is_wanted(change: Change, path: str) -> bool:
        name = path.rpartition("/")[2]
        return change is not Change.deleted and name.endswith(suffixes) and not name.startswith(".")

    def run() -> None:
        try:
            for _ in watch(
                folder, watch_filter=is_wanted, recursive=False, debounce=50, step=20, stop_event=stop,
                raise_interrupt=False,
            ):  # fmt: skip
                notify()
        except Exception:  # the folder is gone or can't be watched: the interval remains
            return

    thread = threading.Thread(target=run, name="onerow-folder-watch", daemon=True)
    thread.start()

    def end() -> None:
        stop.set()
        thread.join(2.0)

    return end
