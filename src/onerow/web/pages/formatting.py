"""Times, durations and numbers as text and as HTML, for the templates."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
from markupsafe import Markup

from onerow.core.times import FAR

NOTHING = "\u2013"


def number(value: float | None) -> str:
    """Format a count or a rate with groups of three digits."""
    if value is None:
        return NOTHING
    if value != int(value) and abs(value) < 10:
        return f"{value:.1f}"
    return f"{value:,.0f}"


def short(value: int) -> str:
    """Format a count for a narrow place: 950, 12k, 3.4M."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:.1f}{unit}" if value < 10 * size else f"{value // size}{unit}"
    return str(value)


def duration(value: timedelta | float | None) -> str:
    """Format a duration, given as a timedelta or in ms, with at most two units."""
    if value is None:
        return NOTHING
    millis = value.total_seconds() * 1000 if isinstance(value, timedelta) else float(value)
    if 0 < millis < 1:
        return f"{millis:.1f} ms"
    if millis < 1000:
        return f"{millis:.0f} ms"
    seconds = millis / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    parts: list[str] = []
    left = round(seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def size(value: int | None) -> str:
    """Format a number of bytes."""
    if value is None:
        return NOTHING
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def moment(value: datetime | str | None, kind: str = "ago") -> Markup:
    """Return a <time> that the browser shows relative to now; without scripts it shows UTC.

    kind: ago, age (a duration since), left (a duration until), clock (hours, minutes, seconds), full.
    """
    if value is None or value == "":
        return Markup(NOTHING)
    when = datetime.fromisoformat(value) if isinstance(value, str) else value
    if when >= FAR:
        return Markup("∞")
    text = f"{when:%H:%M:%S}Z" if kind == "clock" else f"{when:%Y-%m-%d %H:%M:%S}Z"
    iso = when.isoformat(timespec="milliseconds")
    return Markup('<time datetime="{}" data-kind="{}">{}</time>').format(iso, kind, text)


def share(progress: Any) -> float | None:
    """Return the share that a task reported as done, 0 to 1; None if it reported none."""
    if not isinstance(progress, dict) or not isinstance(progress.get("done"), int | float):
        return None
    total = progress.get("total")
    if not isinstance(total, int | float) or total <= 0:
        return None
    return float(min(1.0, max(0.0, progress["done"] / total)))


def progress_text(progress: Any) -> str:
    """Format the progress that a task reported: '62 % · frame 1488'."""
    if not isinstance(progress, dict) or not isinstance(progress.get("done"), int | float):
        return ""
    part = share(progress)
    text = f"{progress['done']:g}" if part is None else f"{part:.0%}"
    note = progress.get("note")
    return f"{text} · {note}" if isinstance(note, str) and note else text


def encoded(value: Any) -> str:
    """Return a value as JSON text; numbers keep every digit."""
    return msgspec.json.encode(value).decode()


def pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def first_line(text: str | None, most: int = 300) -> str:
    return " ".join((text or "").split())[:most]


FILTERS = {
    "number": number, "short": short, "duration": duration, "size": size, "moment": moment, "share": share,
    "progress_text": progress_text, "encoded": encoded, "pretty": pretty, "first_line": first_line,
}  # fmt: skip
