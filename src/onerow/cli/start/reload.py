"""Watch source files for `onerow worker --reload`."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

_LOOK_EVERY = 0.5
_LEFT_OUT = {"node_modules", "site-packages", "__pycache__"}


def watch_sources(folder: Path, changed: Callable[[], None], say: Callable[[str], None]) -> None:
    """Call `changed`, in a new thread, whenever a .py file below the folder is written, created or deleted."""
    threading.Thread(target=_watch, args=(folder, changed, say), name="onerow-reload", daemon=True).start()


def _watch(folder: Path, changed: Callable[[], None], say: Callable[[str], None]) -> None:
    seen = _stamps(folder)
    while True:
        time.sleep(_LOOK_EVERY)
        now = _stamps(folder)
        if now != seen:
            different = sorted({path for path, _ in now.items() ^ seen.items()})
            say(f"{different[0].relative_to(folder)} changed: workers start anew")
            seen = now
            changed()


def _stamps(folder: Path) -> dict[Path, int]:
    stamps = {}
    for path in _sources(folder):
        try:
            stamps[path] = path.stat().st_mtime_ns
        except OSError:
            continue
    return stamps


def _sources(folder: Path) -> list[Path]:
    found: list[Path] = []
    try:
        entries = list(folder.iterdir())
    except OSError:
        return found
    for path in entries:
        if path.name.startswith(".") or path.name in _LEFT_OUT:
            continue
        if path.is_dir() and not path.is_symlink():
            found += _sources(path)
        elif path.suffix == ".py":
            found.append(path)
    return found
