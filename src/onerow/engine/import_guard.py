"""Refuse to add tasks and to run workers while the app is imported.

`onerow worker`, `check` and `publish` import the app, and so does each process of an isolated handler. A script that
adds tasks or runs a worker when it is imported would do so again and again.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from onerow.core.errors import BadInput

_PACKAGE = str(Path(__file__).parents[1])


class CalledAtImport(BadInput):
    """The app adds tasks or runs a worker when it is imported."""


class _State:
    importing = 0
    in_child = False


@contextmanager
def importing_app() -> Iterator[None]:
    """Refuse adds, claims and workers inside the block."""
    _State.importing += 1
    try:
        yield
    finally:
        _State.importing -= 1


def enter_child() -> None:
    """Refuse workers for the rest of this process, which runs one handler; a thread started at import may be late."""
    _State.in_child = True


def check(what: str, *, worker: bool = False) -> None:
    """Raise CalledAtImport if the app is being imported. what: the call, as 'adds a task'."""
    if _State.importing or (worker and _State.in_child):
        raise CalledAtImport(
            f"{_where()} {what} while the app is imported, so every process that imports it would do so again",
            fix='put this line under `if __name__ == "__main__":`, or in a script of its own',
        )


def _where() -> str:
    """Return file and line of the caller outside onerow: of the module's own line, if there is one."""
    frame = sys._getframe(1)
    found = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_PACKAGE, "<")) and "importlib" not in name:
            found = found or f"{name}:{frame.f_lineno}"
            if frame.f_code.co_name == "<module>":
                return f"{name}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return found or "the app"
