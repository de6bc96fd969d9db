"""A folder for one attempt; folders of attempts that were killed are removed by the next one on this host."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HIDDEN = ".new-"


@contextmanager
def work_folder(parent: Path, name: str) -> Iterator[Path]:
    """Create a folder, locked for as long as this process lives; remove it at the end, and those that no process has."""
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    hidden = Path(tempfile.mkdtemp(prefix=_HIDDEN, dir=parent))
    lock = os.open(hidden, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # before the name that others look at
        folder = hidden.rename(parent / f"{name}-{hidden.name.removeprefix(_HIDDEN)}")
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _sweep(parent: Path) -> None:
    for folder in parent.iterdir():
        if folder.name.startswith(_HIDDEN) or not folder.is_dir():
            continue
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            pass  # its process lives
        finally:
            os.close(lock)
