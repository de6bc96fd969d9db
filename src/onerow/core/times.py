"""Times in UTC to the millisecond, in one text format that sorts by time: 2026-11-15T02:29:57.123Z."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput

FAR = datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)
"""The far future; used as the deadline of a wait without one."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI = timedelta(milliseconds=1)


def to_millis(moment: datetime) -> datetime:
    """Convert a time to UTC and truncate it to the millisecond."""
    moment = moment.astimezone(UTC)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


_last_spelled: tuple[datetime | None, str] = (None, "")


def spell(moment: datetime) -> str:
    """Format a time as text; caches the last one, because the tasks of a batch share their times."""
    global _last_spelled
    last, text = _last_spelled
    if moment is last:
        return text
    text = f"{moment.isoformat(timespec='milliseconds')[:23]}Z"
    _last_spelled = (moment, text)
    return text


@lru_cache(maxsize=4096)
def read(text: str) -> datetime:
    """Parse the text that `spell` wrote; raise ValueError for an invalid time or one without a time zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment


def since_epoch(moment: datetime) -> int:
    """Return the milliseconds since 1970."""
    return (moment - _EPOCH) // _MILLI


def parse_time(value: datetime | str | None, field: str) -> datetime:
    """Parse a caller's time, a datetime with a time zone or ISO text with an offset; raise BadInput for anything else."""
    moment: datetime
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise BadInput(
                f"{field}: {value!r} is not a time", fix="write it like 2026-11-15T09:00:00+09:00 or …Z", field=field
            ) from None
    elif isinstance(value, datetime):
        moment = value
    else:
        raise BadInput(f"{field} must be a datetime or ISO text, not {type(value).__name__}", field=field)
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise BadInput(
            f"{field}: {value!s} has no time zone", fix="add one, as in datetime.now(UTC) or …+09:00", field=field
        )
    try:
        moment = to_millis(moment)
    except (OverflowError, ValueError):
        moment = FAR
    if not 1970 <= moment.year < 9999:
        raise BadInput(f"{field}: {value!s} is out of range", fix="give a time between 1970 and 9998", field=field)
    return moment


def parse_moment(value: datetime | str, now: datetime, field: str = "time") -> datetime:
    """Parse a time as `parse_time` does, or as a person writes it: now, +10m, 10m (from now)."""
    if value == "now":
        return now
    if isinstance(value, str) and (value[:1] == "+" or (value[:1].isdigit() and not {"-", "T"} & {*value})):
        return to_millis(now + parse_duration(value.lstrip("+"), field))
    return parse_time(value, field)
