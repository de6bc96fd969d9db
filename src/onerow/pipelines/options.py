"""The options that all phases with code share, and their validation. All functions raise PipelineError."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypedDict

from onerow.core.durations import Duration, parse_duration
from onerow.core.errors import BadInput, PipelineError
from onerow.core.keywords import check_keywords
from onerow.core.plan import DEFAULT_LEASE, DEFAULT_TIMEOUT, Kind, PhasePlan
from onerow.core.rates import parse_rate
from onerow.core.retry import Retry
from onerow.core.sizes import Size, parse_size


class RunOptions(TypedDict, total=False):
    """Options of every phase with code: `phase`, `command` and `batch`."""

    concurrency: int | None
    """Maximum number of running tasks over all workers; None (the default): no limit."""
    per_key: int | None
    """The same for each limit_key."""
    retry: Retry | int | None
    """A policy, or a number of retries; by default `Retry()`."""
    timeout: Duration | None
    """How long an attempt may run; by default 15 minutes, None: without end."""
    lease: Duration
    """How long a worker keeps the task without a heartbeat; by default 30 seconds."""
    renamed_from: str | Sequence[str]
    """Former names of the phase."""
    rate: str
    """Maximum number of starts in any span ('60/min', '5/s') over all workers."""
    rate_per_key: str
    """The same for each limit_key."""


def run_phase(name: str, kind: Kind, given: RunOptions, **more: Any) -> PhasePlan:
    """Build a phase with code from its validated options; `more`: the fields of its kind."""
    check_keywords("phase" if kind == "run" else kind, given, RunOptions)
    return PhasePlan(
        name=name,
        kind=kind,
        concurrency=limit(given.get("concurrency"), "concurrency"),
        per_key=limit(given.get("per_key"), "per_key"),
        retry=policy(given.get("retry")),
        timeout=span(given.get("timeout", DEFAULT_TIMEOUT), "timeout"),
        lease=lease(given.get("lease", DEFAULT_LEASE)),
        renamed_from=names(given.get("renamed_from", ())),
        rate=rate(given.get("rate", ""), "rate"),
        rate_per_key=rate(given.get("rate_per_key", ""), "rate_per_key"),
        **more,
    )


def check_importable(function: Callable[..., Any], where: str) -> None:
    """Raise PipelineError unless the function can be imported by name, which an isolated process needs."""
    qualname = getattr(function, "__qualname__", "")
    if "<lambda>" in qualname or "<locals>" in qualname or not qualname:
        raise PipelineError(
            f"{where} runs in a process of its own, so it must be importable by name, and {qualname or function!r} is a "
            f"lambda or closure",
            fix="define it at the top of a module",
        )


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Name the phase in errors of its options."""
    try:
        yield
    except PipelineError as error:
        if where not in str(error):
            error.args = (f"{where}: {error}",)
        raise


def names(renamed_from: str | Sequence[str]) -> tuple[str, ...]:
    """Return the former names of a phase."""
    return (renamed_from,) if isinstance(renamed_from, str) else tuple(renamed_from)


def limit(value: int | None, field: str) -> int | None:
    """Validate a number of concurrent tasks; None means no limit."""
    if value is not None and (type(value) is not int or not 1 <= value <= 10_000):
        raise PipelineError(f"{field} must be a whole number from 1 to 10,000, or None for no limit, not {value!r}")
    return value


def span(value: Duration | None, field: str) -> timedelta | None:
    """Validate a duration longer than zero, or None."""
    if value is None:
        return None
    span = duration(value, field)
    if not span:
        raise PipelineError(f"{field} must be longer than nothing", fix=f"write {field}=None for no {field}")
    return span


def duration(value: Duration, field: str) -> timedelta:
    """Parse a duration."""
    try:
        return parse_duration(value, field)
    except BadInput as error:
        raise PipelineError(str(error), fix=error.fix, field=field) from None


def lease(value: Duration) -> timedelta:
    """Validate how long a worker keeps a task without a heartbeat."""
    span = duration(value, "lease")
    if not timedelta(seconds=1) <= span <= timedelta(days=7):
        raise PipelineError(f"lease must be between 1 second and 7 days, not {value!r}")
    return span


def rate(text: str, field: str) -> str:
    """Validate a rate and return it as text."""
    if text:
        try:
            parse_rate(text, field)
        except BadInput as error:
            raise PipelineError(str(error), fix=error.fix, field=field) from None
    return text


def size(value: Size, field: str) -> int:
    """Parse a size in bytes."""
    try:
        return parse_size(value, field)
    except BadInput as error:
        raise PipelineError(str(error), fix=error.fix, field=field) from None


def policy(retry: Retry | int | None) -> Retry:
    """Return a retry policy from a Retry, a number of retries or None."""
    match retry:
        case None:
            return Retry()
        case Retry():
            return retry
        case int() if not isinstance(retry, bool):
            return Retry(retry)
    raise PipelineError(f"retry must be a Retry or a number of retries, not {retry!r}", field="retry")
