"""Recorded arrivals and durations in CSV files."""

import csv
from array import array
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from onerow.core.suggest import did_you_mean
from onerow.core.times import parse_time, since_epoch
from onerow.simulator.arrivals import Arrivals, counted
from onerow.simulator.section import PlanError

_Row = tuple[int, dict[str, str]]


def read_arrivals(path: Path, key: str, *, random: bool) -> Arrivals:
    """Read a CSV file with a column `at`: ISO times, or seconds. The first one is the start of the simulation.

    With a column `count`, a row is the beginning of an interval with this number of arrivals, which lasts until the time
    of the next row; the last interval is as long as the one before it.
    """
    times, counts = array("q"), array("d")
    as_seconds = False
    for line, row in _rows(path, key, ("at",), ("count",)):
        as_seconds = as_seconds if times else _is_number(row["at"])
        at = _time(row["at"], path, line, key, as_seconds)
        if times and at < times[-1]:
            raise PlanError(key, f"{path.name}, line {line}: the time is before that of the line above it")
        if "count" in row:
            if times and at == times[-1]:
                raise PlanError(
                    key,
                    f"{path.name}, line {line}: the time is that of the line above it, so that its interval has no length",
                    fix="add the counts of both lines into one",
                )
            counts.append(_number(row["count"], path, line, key))
        times.append(at)
    start = times[0]
    for place, at in enumerate(times):
        times[place] = at - start
    if not counts:
        return Arrivals(times=times)
    if len(times) < 2:
        raise PlanError(key, f"{path.name} has one interval, whose length is unknown", fix="add the row after it")
    ends = [*times[1:], 2 * times[-1] - times[-2]]
    return Arrivals(random=random, segments=counted(list(zip(times, ends, counts, strict=True))))


def read_durations(path: Path, key: str) -> dict[int, float]:
    """Read a CSV file with a column `seconds` of measured durations, and perhaps a column `count` of how often each."""
    found: dict[int, float] = {}
    for line, row in _rows(path, key, ("seconds",), ("count",)):
        count = _number(row["count"], path, line, key) if "count" in row else 1
        took = max(1, round(_number(row["seconds"], path, line, key) * 1000))
        found[took] = found.get(took, 0) + count
    if not sum(found.values()):
        raise PlanError(key, f"{path.name} has no durations")
    return found


def _rows(path: Path, key: str, required: tuple[str, ...], optional: tuple[str, ...]) -> Iterator[_Row]:
    """Yield the line number and the values of each row."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            names = list(reader.fieldnames or ())
            if not names:
                raise PlanError(
                    key, f"{path.name} is empty", fix=f"its first line must name the column {required[0]!r}"
                )
            for name in required:
                if name not in names:
                    raise PlanError(
                        key, f"{path.name} has no column {name!r}", fix=f"its columns are {', '.join(names)}"
                    )
            for name in names:
                if names.count(name) > 1:
                    raise PlanError(key, f"{path.name} has the column {name!r} twice", fix="remove one of them")
                if name not in required + optional:
                    fix = did_you_mean(name, required + optional)
                    raise PlanError(key, f"{path.name} has a column {name!r}, which is not known", fix=fix)
            empty = True
            for row in reader:
                empty = False
                if None in row:
                    raise PlanError(
                        key,
                        f"{path.name}, line {reader.line_num}: has more values than the first line has columns",
                        fix="write numbers with a decimal point: 0.5, not 0,5",
                    )
                if None in row.values():
                    raise PlanError(
                        key, f"{path.name}, line {reader.line_num}: has fewer values than the first line has columns"
                    )
                yield reader.line_num, row
            if empty:
                raise PlanError(key, f"{path.name} has no rows")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PlanError(key, f"can't read {path}: {error}") from None


def _is_number(value: str) -> bool:
    try:
        return abs(float(value)) < 1e12
    except ValueError:
        return False


def _time(value: str, path: Path, line: int, key: str, as_seconds: bool) -> int:
    """Read seconds, or an ISO time; return milliseconds."""
    fix = "write seconds with a decimal point, or 2026-11-15T09:00:00Z"
    if _is_number(value):
        if not as_seconds:
            raise PlanError(key, f"{path.name}, line {line}: has seconds, but the first row has an ISO time", fix=fix)
        return round(float(value) * 1000)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise PlanError(key, f"{path.name}, line {line}: {value!r} is not a time", fix=fix) from None
    if as_seconds:
        raise PlanError(key, f"{path.name}, line {line}: has an ISO time, but the first row has seconds", fix=fix)
    if moment.utcoffset() is None:
        raise PlanError(key, f"{path.name}, line {line}: {value!r} has no time zone", fix=fix)
    return since_epoch(parse_time(moment, "at"))


def _number(value: str, path: Path, line: int, key: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e12:
        raise PlanError(
            key,
            f"{path.name}, line {line}: {value!r} is not a number of 0 or more",
            fix="write it with a decimal point, like 0.5",
        )
    return found
