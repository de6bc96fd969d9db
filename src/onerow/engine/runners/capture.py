"""Output capture: what handlers print and log goes to the log of their task."""

import logging
import sys
from typing import Any, TextIO

from onerow.engine.handler.context import current
from onerow.engine.output.echo import Echo
from onerow.engine.output.masking import NO_SECRETS, Masker


class _Tee:
    """A text stream that sends output to the attempt running in this context, else to the original stream."""

    def __init__(self, stream: TextIO, level: str, masker: Masker) -> None:
        self._stream = stream
        self._level = level
        self._masker = masker

    def write(self, text: str) -> int:
        attempt = current.get()
        if attempt is None:
            # Threads started by a handler belong to no attempt, so secrets are masked here too.
            self._stream.write(self._masker.text(text))
            return len(text)
        attempt.write(self._level, text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


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


class Capture:
    """While started, redirects output of handlers to their task's log; other output is unaffected.

    show: write it to the logger 'onerow.output' too.
    """

    def __init__(self, masker: Masker = NO_SECRETS, *, show: bool = False) -> None:
        self._masker = masker
        self.echo = Echo() if show else None
        self._records = _Records()

    def start(self) -> None:
        self._out, self._err = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (
            _Tee(sys.stdout, "out", self._masker),
            _Tee(sys.stderr, "err", self._masker),
        )
        logging.getLogger().addHandler(self._records)
        if self.echo is not None:
            self.echo.start()

    def stop(self) -> None:
        sys.stdout, sys.stderr = self._out, self._err
        logging.getLogger().removeHandler(self._records)
        if self.echo is not None:
            self.echo.stop()
