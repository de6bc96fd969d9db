"""Prints and log records of handlers go to their task's log as well as to where they went before."""

import logging
import sys
from typing import Any, TextIO

from onerow.engine.handler.context import current
from onerow.engine.output.masking import NO_SECRETS, Masker
from onerow.engine.output.terminal import neutral_lines


class _Tee:
    """A text stream that also gives whole lines to the attempt that runs here, if one does."""

    def __init__(self, stream: TextIO, level: str, masker: Masker) -> None:
        self._stream = stream
        self._level = level
        self._masker = masker

    def write(self, text: str) -> int:
        attempt = current.get()
        if attempt is None:
            # Also of a handler's own threads, which belong to no attempt: secrets are masked here too.
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
                attempt.log(record.levelname.lower(), self.format(record))
            except Exception:
                self.handleError(record)


class MaskedFormatter(logging.Formatter):
    """Formats log records, those of handlers too, without secrets and without anything that could steer a terminal."""

    def __init__(self, format: str, masker: Masker) -> None:
        super().__init__(format)
        self._masker = masker

    def format(self, record: logging.LogRecord) -> str:
        return neutral_lines(self._masker.text(super().format(record)))


class Capture:
    """While started, output of handlers is kept with their task; everyone else's goes where it went."""

    def __init__(self, masker: Masker = NO_SECRETS) -> None:
        self._masker = masker
        self._records = _Records()

    def start(self) -> None:
        self._out, self._err = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = (
            _Tee(sys.stdout, "out", self._masker),
            _Tee(sys.stderr, "err", self._masker),
        )
        logging.getLogger().addHandler(self._records)

    def stop(self) -> None:
        sys.stdout, sys.stderr = self._out, self._err
        logging.getLogger().removeHandler(self._records)
