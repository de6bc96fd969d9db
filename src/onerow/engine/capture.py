"""Prints and log records of handlers go to their task's log as well as to where they went before."""

import logging
import sys
from typing import Any, TextIO

from onerow.engine.context import current


class _Tee:
    """A text stream that also gives whole lines to the attempt that runs here, if one does."""

    def __init__(self, stream: TextIO, level: str) -> None:
        self._stream = stream
        self._level = level

    def write(self, text: str) -> int:
        attempt = current.get()
        if attempt is None:
            return self._stream.write(text)
        attempt.write(self._level, text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Records(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        attempt = current.get()
        if attempt is not None and not record.name.startswith("onerow"):
            try:
                attempt.log(record.levelname.lower(), self.format(record))
            except Exception:
                self.handleError(record)


class Capture:
    """While started, output of handlers is kept with their task; everyone else's goes where it went."""

    def __init__(self) -> None:
        self._records = _Records()

    def start(self) -> None:
        self._out, self._err = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = _Tee(sys.stdout, "out"), _Tee(sys.stderr, "err")
        logging.getLogger().addHandler(self._records)

    def stop(self) -> None:
        sys.stdout, sys.stderr = self._out, self._err
        logging.getLogger().removeHandler(self._records)
