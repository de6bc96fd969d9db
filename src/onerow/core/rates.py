"""Rate limits over a sliding window: at most `count` starts in any span of `per` ms. Times are ms since 1970.

A window stores groups of starts. Starts close together become one group at the time of the latest start: the window
stays small, and the error can only delay a start.
"""

import re
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput

_RATE = re.compile(r"\s*(\d+)\s*/\s*(\S+)\s*")
_WORDS = {"sec": "s", "second": "s", "minute": "min", "hour": "h", "day": "d", "week": "w"}

Starts = list[tuple[int, int]]
"""(time, number of starts), oldest first."""


class Rate(msgspec.Struct, frozen=True):
    """At most `count` starts in any span of `per` ms."""

    count: int
    per: int  # ms


def parse_rate(text: str, field: str = "rate") -> Rate:
    """Parse a rate like '60/min', '5/s', '1000/d' or '10/30s'."""
    found = _RATE.fullmatch(str(text))
    if found is None:
        raise BadInput(
            f"{field}: can't read the rate {text!r}", fix="write it like '60/min', '5/s' or '10/30s'", field=field
        )
    count, unit = int(found[1]), found[2].lower()
    unit = _WORDS.get(unit, unit)
    per = parse_duration(unit if unit[0].isdigit() else f"1{unit}", field)
    if not 1 <= count <= 1_000_000 or not timedelta(milliseconds=100) <= per <= timedelta(days=366):
        raise BadInput(f"{field}: {text!r} must be at least 1 in 100 ms to a year", field=field)
    return Rate(count, round(per / timedelta(milliseconds=1)))


def is_faster(rate: Rate | None, other: Rate | None) -> bool:
    """Whether a rate allows more starts per time than another; None: unlimited."""
    if rate is None or other is None:
        return rate is None and other is not None
    return rate.count * other.per > other.count * rate.per


def starts_left(rate: Rate, starts: Starts, now: int) -> int:
    """Return how many starts the rate allows now."""
    return max(0, rate.count - sum(count for at, count in starts if at > now - rate.per))


def started(rate: Rate, starts: Starts, now: int, count: int, groups: int) -> Starts:
    """Return the window with `count` more starts and without the expired ones."""
    kept = [(at, many) for at, many in starts if at > now - rate.per]
    if count:
        kept.append((now, count))
    span = max(1, rate.per // groups)
    merged: Starts = []
    for at, many in kept:
        if merged and merged[-1][0] // span == at // span:
            merged[-1] = (at, merged[-1][1] + many)
        else:
            merged.append((at, many))
    return merged


def free_at(rate: Rate, starts: Starts, now: int) -> int:
    """Return when the rate allows the next start."""
    left = sum(count for at, count in starts if at > now - rate.per)
    for at, count in starts:
        if left < rate.count:
            return now
        if at > now - rate.per:
            left -= count
            if left < rate.count:
                return at + rate.per
    return now


class Window(msgspec.Struct, omit_defaults=True):
    """The recent starts of a phase: in total and by key."""

    starts: Starts = []
    keys: dict[str, Starts] = {}
    booked: dict[str, int] = {}  # by key: the time to which the next delayed task goes
    pace: int = 0  # ms between the booked times; those of another rate don't count


class Verdict(msgspec.Struct, frozen=True):
    """The decision about some tasks: which may start, and until when the others are delayed."""

    window: Window
    admitted: list[int]  # positions
    put_off: list[tuple[int, int]]  # (position, time); time 0: keep the present run_at


_GROUPS = 60
_GROUPS_PER_KEY = 8


def admit(window: Window, keys: Sequence[str], whole: Rate | None, each: Rate | None, now: int) -> Verdict:
    """Decide which tasks, given by their keys, may start now; for a task without a key only the rate `whole` counts."""
    left = len(keys) if whole is None else starts_left(whole, window.starts, now)
    by_key = dict(window.keys)
    pace = 0 if each is None else each.per // each.count
    booked = {key: until for key, until in window.booked.items() if until > now and window.pace == pace}
    admitted: list[int] = []
    put_off: list[tuple[int, int]] = []
    for position, key in enumerate(keys):
        if each is not None and key and starts_left(each, by_key.get(key, []), now) == 0:
            # Each task gets a later time than the one before it, so that they don't all become due at once.
            until = max(booked.get(key, 0), free_at(each, by_key[key], now))
            booked[key] = until + pace
            put_off.append((position, until))
        elif left == 0:
            put_off.append((position, 0))
        else:
            left -= 1
            admitted.append(position)
            if each is not None and key:
                by_key[key] = started(each, by_key.get(key, []), now, 1, _GROUPS_PER_KEY)
    starts = [] if whole is None else started(whole, window.starts, now, len(admitted), _GROUPS)
    if each is not None:
        by_key = {
            key: kept for key, starts in by_key.items() if (kept := started(each, starts, now, 0, _GROUPS_PER_KEY))
        }
    return Verdict(Window(starts, by_key, booked, pace), admitted, put_off)
