"""Tracebacks of attempts, read from the task's log and split into frames of the user's code and others."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from onerow.core.failure import is_user_code
from onerow.ports import LogLine

_FRAME = re.compile(r'^(?P<indent>[\s|+]*)File "(?P<file>[^"]*)", line (?P<line>\d+)(?:, in (?P<function>.*))?$')
_BEGINS = re.compile(r"^[\s|+]*(?:Exception Group )?Traceback \(most recent call last\):")


class TracePart(msgspec.Struct, frozen=True, omit_defaults=True):
    """Some lines of a traceback: a frame, or text around frames (file '')."""

    text: str
    file: str = ""
    line: int = 0
    function: str = ""
    mine: bool = True  # the user's code, or text that is always shown


class Traceback(msgspec.Struct, frozen=True):
    """A traceback as written, and in parts; those with `mine` are the short form."""

    text: str
    parts: list[TracePart]


def split_trace(text: str) -> Traceback:
    """Split a traceback; any text is accepted."""
    parts: list[TracePart] = []
    lines: list[str] = []
    frame: re.Match[str] | None = None

    def close() -> None:
        if lines:
            joined = "\n".join(lines)
            if frame is None:
                parts.append(TracePart(joined))
            else:
                file, function = frame["file"], frame["function"] or ""
                parts.append(TracePart(joined, file, int(frame["line"][:9]), function, is_user_code(file)))
            lines.clear()

    for line in text.split("\n"):
        found = _FRAME.match(line)
        if found is not None:
            close()
            frame = found
        elif frame is not None and not line.startswith(frame["indent"] + " "):
            close()
            frame = None
        lines.append(line)
    close()
    return Traceback(text, parts)


def find_trace(lines: Sequence[LogLine], phase: str, attempt: int, until: datetime) -> Traceback | None:
    """Return the traceback that an attempt wrote last before `until`; None if the log has none (any more)."""
    mine = [
        line
        for line in lines
        if line.level == "error" and line.phase == phase and line.attempt == attempt and line.at <= until
    ]
    blocks = [block for block in _blocks(mine) if any(_BEGINS.match(line.text) for line in block)]
    return split_trace("\n".join(line.text for line in blocks[-1])) if blocks else None


def _blocks(lines: Iterable[LogLine]) -> list[list[LogLine]]:
    """Group lines that were written together."""
    blocks: list[list[LogLine]] = []
    for line in lines:
        last = blocks[-1][-1] if blocks else None
        if last is not None and last.at == line.at and last.seq + 1 == line.seq:
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return blocks
