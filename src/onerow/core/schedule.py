"""Cron schedules: compute which nominal times are due. The current time is an argument."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from onerow.core import values
from onerow.core.errors import PipelineError

CatchUp = Literal["one", "all", "skip"]
Overlap = Literal["allow", "skip"]

ON_TIME = timedelta(minutes=1)
"""A nominal time fired within this delay counts as on time; after it, the catch-up policy decides."""
MOST_AT_ONCE = 100


class Cron(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One schedule of a pipeline, as data. Its name identifies its last fired time and its pauses."""

    name: str  # identifies it in its pipeline
    expression: str  # such as '0 6 * * 1-5'
    tz: str = "UTC"  # the time zone
    payload: Any = None  # the payload of its tasks
    user_id: str = ""  # the owner of its tasks
    catch_up: CatchUp = "one"  # which missed times to fire
    overlap: Overlap = "allow"  # 'skip': no task while the previous one has not ended


def check(cron: Cron) -> Cron:
    """Return the schedule; raise PipelineError if it is invalid."""
    if cron.catch_up not in ("one", "all", "skip"):
        raise PipelineError(f"catch_up must be 'one', 'all' or 'skip', not {cron.catch_up!r}", field="catch_up")
    if cron.overlap not in ("allow", "skip"):
        raise PipelineError(f"overlap must be 'allow' or 'skip', not {cron.overlap!r}", field="overlap")
    if not isinstance(cron.expression, str):
        raise PipelineError(f"a cron expression is text, not {cron.expression!r}", field="cron")
    try:
        next(_times(cron, datetime(2026, 1, 1, tzinfo=UTC)))
    except (CronSimError, StopIteration) as error:
        raise PipelineError(
            f"{cron.expression!r} is not a cron expression ({error})",
            fix="write minute hour day month weekday, as in '0 9 * * 1-5'",
            field="cron",
        ) from None
    values.encode(cron.payload, "payload")
    return cron


def next_time(cron: Cron, after: datetime) -> datetime:
    """Return the first nominal time after a given time, in UTC."""
    return next(_times(cron, after))


def latest_time(cron: Cron, until: datetime) -> datetime | None:
    """Return the last nominal time at or before a given time, in UTC."""
    # CronSim in reverse yields only times strictly before its start.
    start = (until + timedelta(seconds=1)).astimezone(_zone(cron.tz))
    for moment in CronSim(cron.expression, start, reverse=True):
        if (nominal := moment.astimezone(UTC)) <= until:
            return nominal
    return None


def due(cron: Cron, last: datetime, now: datetime) -> list[datetime]:
    """Return the nominal times after `last` and up to `now` that the catch-up policy fires, oldest first."""
    if next_time(cron, last) > now:
        return []
    if cron.catch_up == "all":
        found: list[datetime] = []
        for nominal in _times(cron, last):
            if nominal > now or len(found) == MOST_AT_ONCE:
                break
            found.append(nominal)
        return found
    latest = latest_time(cron, now)
    if latest is None or latest <= last:
        return []
    return [latest] if cron.catch_up == "one" or now - latest <= ON_TIME else []


def _times(cron: Cron, after: datetime) -> Iterator[datetime]:
    # In the hour that is repeated when daylight saving time ends, CronSim may yield times before its start.
    for moment in CronSim(cron.expression, after.astimezone(_zone(cron.tz))):
        if (nominal := moment.astimezone(UTC)) > after:
            yield nominal


@lru_cache
def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise PipelineError(
            f"no time zone {name!r}",
            fix="name it like 'Asia/Seoul' (on a system without zones: pip install tzdata)",
            field="tz",
        ) from None
