"""Output capture: what handlers print and log goes to the log of their task."""

import logging
import sys
import threading
from typing import Any, TextIO

from onerow.engine.handler.context import current
from onerow.engine.output.echo import Echo
from onerow.engine.output.masking import NO_SECRETS, Masker


class _Tee:
    """A text stream that sends output to the attempt running in this context, else to the original stream."""

    def __init__(self, stream: TextIO, level: str, maskers: list[Masker]) -> None:
        self.stream = stream
        self._level = level
        self._maskers = maskers

    def write(self, text: str) -> int:
        attempt = current.get()
        if attempt is None:
            # Threads started by a handler belong to no attempt, so secrets are masked here too.
            shown = text
            for masker in tuple(self._maskers):
                shown = masker.text(shown)
            self.stream.write(shown)
            return len(text)
        attempt.write(self._level, text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Records(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        attempt = current.get()
        if attempt is not None and not record.name.startswith("onerow"):
            try:
                attempt.log(record.levelname.lower(), self.format(record), echo=False)  # other handlers show it
            except Exception:
                self.handleError(record)
        elif logging.lastResort is not None and record.levelno >= logging.lastResort.level and _is_unhandled(record):
            logging.lastResort.handle(record)  # as if this handler were not installed


def _is_unhandled(record: logging.LogRecord) -> bool:
    """Whether no handler but that of a worker gets this record."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if not all(isinstance(handler, _Records) for handler in logger.handlers):
            return False
        logger = logger.parent if logger.propagate else None
    return True


class _Installed:
    """What the captures of this process share: one pair of streams and one log handler, whichever capture ends last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._maskers: list[Masker] = []
        self._records = _Records()
        self._out: _Tee | None = None
        self._err: _Tee | None = None

    def add(self, masker: Masker) -> None:
        with self._lock:
            self._maskers.append(masker)
            if len(self._maskers) == 1:
                self._out, self._err = (
                    _Tee(sys.stdout, "out", self._maskers),
                    _Tee(sys.stderr, "err", self._maskers),
                )
                sys.stdout, sys.stderr = self._out, self._err
                logging.getLogger().addHandler(self._records)

    def remove(self, masker: Masker) -> None:
        with self._lock:
            self._maskers.remove(masker)
            if self._maskers:
                return
            logging.getLogger().removeHandler(self._records)
            # A stream that other code has put there since then stays.
            if self._out is not None and sys.stdout is self._out:
                sys.stdout = self._out.stream
            if self._err is not None and sys.stderr is self._err:
                sys.stderr = self._err.stream


_installed = _Installed()


class Capture:
    """While started, redirects output of handlers to their task's log; other output is unaffected.

    show: write it to the logger 'onerow.output' too.
    """

    def __init__(self, masker: Masker = NO_SECRETS, *, show: bool = False) -> None:
        self._masker = masker
        self.echo = Echo() if show else None

    def start(self) -> None:
        _installed.add(self._masker)
        if self.echo is not None:
            self.echo.start()

    def stop(self) -> None:
        _installed.remove(self._masker)
        if self.echo is not None:
            self.echo.stop()
