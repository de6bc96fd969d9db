"""Text for the cells of a terminal: made safe, measured in cells, cut, and drawn as bars."""

import re
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from onerow.cli import formatting
from onerow.engine.output.terminal import neutral

Cell = str | tuple[str, str]
"""A text, or a text and its style."""

_SHORTEST_ID, _LONGEST_ID = 8, 36
# A zero-width joiner after a symbol; the one between letters changes their shape and stays.
_JOINED_EMOJI = re.compile("(?<=[\u2190-\u2bff\U0001f000-\U0001faff])\u200d")
_EIGHTHS = "▏▎▍▌▋▊▉"


def safe(cell: Cell) -> tuple[str, str]:
    """Return text and style of a cell; the text cannot steer the terminal and is one line."""
    text, style = cell if isinstance(cell, tuple) else (cell, "")
    return apart(neutral(text)), style


def apart(text: str) -> str:
    """Return text with joined emoji as single ones, because terminals disagree about the width of a joined one."""
    return text if text.isascii() else _JOINED_EMOJI.sub("", text.replace("\ufe0f", ""))


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Return safe text in exactly `width` cells; what does not fit is cut with an ellipsis."""
    if width <= 0:
        return ""
    long = cell_len(text)
    if long > width:
        return set_cell_size(text, width - 1) + "…"
    return " " * (width - long) + text if right else text + " " * (width - long)


def wrapped(text: str, width: int) -> list[str]:
    """Return safe text in lines of at most `width` cells, cut between words."""
    lines = [""]
    for word in text.split():
        if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(word) > width:
            lines.append(word)
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return lines


def bar(share: float, width: int) -> str:
    """Return a bar that is filled to a share from 0 to 1, in eighths of a cell."""
    share = min(max(share, 0.0), 1.0)
    eighths = round(share * width * 8)
    full, rest = divmod(eighths, 8)
    body = "█" * full + (_EIGHTHS[rest - 1] if rest else "")
    return body + "░" * (width - len(body))


def message_of(error: str, exception: str) -> str:
    """Return the text of an error without the name of its exception, which is shown beside it."""
    return error.removeprefix(f"{exception}: ") if exception else error


def progress_share(value: object) -> float | None:
    """Return the share that a task's progress reports; None if it has no total."""
    if not isinstance(value, dict):
        return None
    done, total = value.get("done"), value.get("total")
    if not isinstance(done, int | float) or not isinstance(total, int | float) or not total:
        return None
    return min(max(done / total, 0.0), 1.0)


def progress_text(value: object, width: int) -> str:
    """Return the progress that a task reports: a bar of some cells with the share, or a text if it has no total."""
    share = progress_share(value)
    return formatting.progress(value) if share is None else f"{bar(share, width)} {share:4.0%}"


def columns_chart(values: Sequence[float], width: int, height: int) -> list[str]:
    """Return a chart of vertical bars, newest on the right, as `height` lines of at most `width` cells."""
    shown = list(values)[-width:]
    most = max(shown, default=0.0)
    lines = []
    for level in range(height - 1, -1, -1):
        line = ""
        for value in shown:
            eighths = round(value / most * height * 8) - level * 8 if most else 0
            line += " " if eighths <= 0 else "▁▂▃▄▅▆▇█"[min(eighths, 8) - 1]
        lines.append(line)
    return lines


def short_ids(ids: Sequence[str]) -> list[str]:
    """Return the beginnings of ids, long enough to differ from each other; commands accept them."""
    length = _SHORTEST_ID
    whole = {each[:_LONGEST_ID] for each in ids}
    while length < _LONGEST_ID and len({each[:length] for each in whole}) < len(whole):
        length += 1
    return [each[:length] for each in ids]
