"""Watch source files for `onerow worker --reload`."""

import threading
from collections.abc import Callable
from pathlib import Path

from onerow.core.errors import BadInput


def watch_sources(folder: Path, changed: Callable[[], None], say: Callable[[str], None]) -> None:
    """Call `changed`, in a new thread, whenever a Python file below the folder is written, created or deleted."""
    try:
        from watchfiles import PythonFilter, watch
    except ModuleNotFoundError:
        raise BadInput(
            "--reload needs watchfiles", fix="install it with: pip install 'onerow[reload]'", field="reload"
        ) from None

    def follow() -> None:
        for changes in watch(folder, watch_filter=PythonFilter(), debounce=500):
            first = min(path for _, path in changes)
            say(f"{Path(first).relative_to(folder)} changed, restarting workers")
            changed()

    threading.Thread(target=follow, name="onerow-reload", daemon=True).start()
