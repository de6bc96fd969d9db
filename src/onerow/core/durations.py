"""Parse and format durations: '5s', '15m', '2d', 90 (seconds), or a timedelta."""

import re
from datetime import timedelta

from onerow.core.errors import BadInput

Duration = str | int | float | timedelta

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d|w)")
_LONGEST = timedelta(days=36500)


def parse_duration(value: Duration, field: str = "duration") -> timedelta:
    """Convert a duration to a timedelta of 0 seconds to 100 years; raise BadInput if it is invalid."""
    if isinstance(value, timedelta):
        span = value
    elif isinstance(value, bool):
        raise BadInput(f"{field} must be a duration like '5s' or '2h', not {value!r}", field=field)
    elif isinstance(value, int | float):
        if not 0 <= value < _LONGEST.total_seconds():
            raise BadInput(f"{field} must be between 0 seconds and 100 years, not {value!r}", field=field)
        span = timedelta(seconds=value)
    else:
        text = str(value).strip().lower()
        if not text or _PART.sub("", text).strip():
            raise BadInput(
                f"{field}: can't read the duration {value!r}",
                fix="write it like '500ms', '5s', '15m', '1h30m' or '2d'",
                field=field,
            )
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
        if seconds > _LONGEST.total_seconds():
            raise BadInput(f"{field} must be under 100 years, not {value!r}", field=field)
        span = timedelta(seconds=seconds)
    if not timedelta(0) <= span <= _LONGEST:
        raise BadInput(f"{field} must be between 0 seconds and 100 years, not {value!r}", field=field)
    return span


def spell_duration(span: timedelta) -> str:
    """Format a duration in the shortest form that parse_duration accepts, like '1h30m' or '250ms'."""
    millis = round(span / timedelta(milliseconds=1))
    if millis == 0:
        return "0s"
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, millis = divmod(millis, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
