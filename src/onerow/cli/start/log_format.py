"""Formats of the worker's log: text, json, logfmt; secrets are masked and control characters replaced in all of them."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from onerow.engine.output.masking import Masker
from onerow.engine.output.terminal import neutral, neutral_json, neutral_lines

FORMATS = ("text", "json", "logfmt")
_TEXT = "%(asctime)s %(levelname).1s %(message)s"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def formatter(name: str, masker: Masker) -> logging.Formatter:
    """Return the formatter of this name."""
    return {"text": TextFormatter, "json": JsonFormatter, "logfmt": LogfmtFormatter}[name](masker)


class TextFormatter(logging.Formatter):
    """A line for people; a traceback follows on lines of its own."""

    def __init__(self, masker: Masker) -> None:
        super().__init__(_TEXT)
        self._masker = masker

    def format(self, record: logging.LogRecord) -> str:
        return neutral_lines(self._masker.text(super().format(record)))


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, the fields of the record, trace."""

    def __init__(self, masker: Masker) -> None:
        super().__init__()
        self._masker = masker

    def format(self, record: logging.LogRecord) -> str:
        return neutral_json(json.dumps(self.fields(record), ensure_ascii=False, default=str))

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return what the line says of the record, masked."""
        at = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, Any] = {
            "time": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._masker.text(record.getMessage()),
        }
        own = {name: value for name, value in vars(record).items() if name not in _STANDARD and name not in fields}
        fields |= self._masker.value(own)
        trace = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else "")
        return fields | ({"trace": self._masker.text(trace)} if trace else {})


class LogfmtFormatter(JsonFormatter):
    """The same fields as key=value; a value with spaces, quotes or '=' is quoted."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{neutral(name)}={_value(value)}" for name, value in self.fields(record).items())


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    text = "\n".join(map(neutral, str(value).split("\n")))
    plain = text.isprintable() and text and not set(text) & set(' "=\\')
    return text if plain else json.dumps(text, ensure_ascii=False)
