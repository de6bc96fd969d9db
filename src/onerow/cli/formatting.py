"""Format times, durations and numbers for one line of output."""

from datetime import datetime
from typing import Any

from onerow.core.times import FAR


def span(seconds: float) -> str:
    """Format a duration in at most five characters: 850ms, 12s, 3m, 4.5h, 12d."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 100:
        return f"{seconds:.0f}s"
    if seconds < 6_000:
        return f"{seconds / 60:.0f}m"
    if seconds < 36_000:
        return f"{seconds / 3600:.1f}h"
    return f"{seconds / 3600:.0f}h" if seconds < 360_000 else f"{seconds / 86400:.0f}d"


def millis(value: int | None) -> str:
    return "" if value is None else span(value / 1000)


def ago(moment: datetime | None, now: datetime) -> str:
    return "" if moment is None else span((now - moment).total_seconds())


def due(moment: datetime, now: datetime) -> str:
    """Format a due time relative to now."""
    if moment >= FAR:
        return "never"
    left = (moment - now).total_seconds()
    return f"in {span(left)}" if left > 0 else f"{span(-left)} ago"


def at(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}Z"


def progress(value: Any) -> str:
    """Format the progress that a task reported."""
    if not isinstance(value, dict) or not isinstance(value.get("done"), int | float):
        return ""
    total = value.get("total")
    text = f"{value['done'] / total:.0%}" if total and isinstance(total, int | float) else f"{value['done']:g}"
    return f"{text} {value['note']}" if value.get("note") else text


def number(value: float) -> str:
    if value == 0:
        return ""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
