"""Read a plan from a TOML file."""

import tomllib
from datetime import timedelta
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import msgspec

from onerow.core.errors import BadInput
from onerow.core.plan import DEFAULT_LEASE, PhasePlan
from onerow.core.rates import parse_rate
from onerow.core.retry import Retry
from onerow.core.scaling import ScaleSettings
from onerow.simulator.arrivals import Arrivals
from onerow.simulator.durations import Durations, fixed, log_normal, measured
from onerow.simulator.model import MOST_SLOTS, Phase, Scaling, SimulatedPlan, Workers, millis
from onerow.simulator.recorded import read_arrivals, read_durations
from onerow.simulator.section import PlanError, Section, number, positive_span, span, text, whole

_MOST_PERIODS = 10_000
_MOST_TASKS = 1_000_000_000


def read_plan(path: Path, measured_plan: SimulatedPlan | None = None) -> SimulatedPlan:
    """Return the plan of a file; raise PlanError or BadInput.

    measured_plan: gives the arrivals and phases that the file leaves out.
    """
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"can't read the plan {path}: {error}", field="plan") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is not TOML: {error}", field="plan") from None
    try:
        return _plan(Section("", given), path, measured_plan)
    except PlanError as error:
        error.args = (f"{path}: {error.args[0]}",)
        raise


def _plan(section: Section, path: Path, known: SimulatedPlan | None) -> SimulatedPlan:
    folder = path.parent
    lasts = section.take("lasts", positive_span, timedelta(days=1))
    # Rounded up, because the part that is left would be a period of its own.
    period = section.take("period", positive_span, timedelta(milliseconds=ceil(millis(lasts) / 24)))
    if lasts / period > _MOST_PERIODS:
        raise PlanError("period", f"makes more than {_MOST_PERIODS:,} periods", fix="make it longer")
    name = section.take("name", text, path.stem)
    seed = section.take("seed", whole(0), 1)
    no_keys: tuple[float, ...] = ()
    keys = section.take("keys", _keys, no_keys)
    arrivals = section.take("arrivals", partial(_arrivals, folder), *(() if known is None else (known.arrivals,)))
    if (tasks := arrivals.expected(millis(lasts))) > _MOST_TASKS:
        raise PlanError(
            "arrivals",
            f"are about {tasks:,.0f} tasks, and {_MOST_TASKS:,} are the most",
            fix="make 'lasts' shorter, or let fewer tasks arrive",
        )
    phases = section.take("phases", partial(_phases, folder), *(() if known is None else (known.phases,)))
    workers, slots = section.take("workers", partial(_workers, folder))
    scaling = section.take("scaling", partial(_scaling, slots), None)
    section.close()
    if workers.count < 0:
        if scaling is None:
            raise PlanError("workers.count", "is missing", fix="give the number of workers, or add a table [scaling]")
        workers = msgspec.structs.replace(workers, count=scaling.settings.minimum)
    _check_size(workers, workers.count if scaling is None else max(workers.count, scaling.settings.maximum), lasts)
    if not keys and any(phase.options.per_key or phase.options.rate_per_key for phase in phases):
        raise PlanError("keys", "is missing, but a phase has a limit per key", fix="say how many keys: keys = 20")
    return SimulatedPlan(
        name=name, arrivals=arrivals, phases=phases, workers=workers, scaling=scaling, lasts=lasts, period=period,
        seed=seed, keys=keys,
    )  # fmt: skip


def _check_size(workers: Workers, most: int, lasts: timedelta) -> None:
    """Raise PlanError if the slots would take all memory, or the deaths of workers would never end."""
    if (slots := most * workers.slots) > MOST_SLOTS:
        raise PlanError(
            "workers", f"have up to {slots:,} slots, and {MOST_SLOTS:,} are the most", fix="plan fewer workers or slots"
        )
    if workers.dies_every is not None and (deaths := most * (lasts / workers.dies_every)) > _MOST_TASKS:
        raise PlanError("workers.dies_every", f"about {deaths:,.0f} workers die", fix="let them live longer")


def _keys(value: Any, path: str) -> tuple[float, ...]:
    """A number of equally frequent keys, or a list with the weight of each."""
    if value == []:
        raise PlanError(path, "must be a number of keys, or a list with their weights")
    if isinstance(value, list):
        return tuple(number(0.001, 1e9)(each, f"{path}[{place}]") for place, each in enumerate(value))
    return (1.0,) * whole(1, 100_000)(value, path)


def _arrivals(folder: Path, value: Any, path: str) -> Arrivals:
    section = Section(path, value)
    section.only_one("rate", "file")
    section.only_one("curve", "file")
    kind = section.take("kind", _kind, None)
    random = kind != "constant"
    if section.has("file"):
        name = section.take("file", text)
        found = read_arrivals(folder / name, section.path_of("file"), random=random)
        if kind and found.times is not None:
            raise PlanError(
                section.path_of("kind"),
                f"the tasks arrive at the times in {name}",
                fix="remove it, or add a column 'count' to the file",
            )
    else:
        rate = section.take("rate", lambda given, where: parse_rate(text(given, where), where))
        found = Arrivals(random=random, rate=rate, curve=section.take("curve", _curve, ()))
    section.close()
    return found


def _kind(value: Any, path: str) -> str:
    if value not in ("poisson", "constant"):
        raise PlanError(path, f"must be 'poisson' or 'constant', not {value!r}")
    return str(value)


def _curve(value: Any, path: str) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) != 24:
        raise PlanError(path, "must be a list of 24 numbers: factors of the rate by hour, the first at midnight")
    return tuple(number(0, 1e6)(each, f"{path}[{hour}]") for hour, each in enumerate(value))


def _phases(folder: Path, value: Any, path: str) -> tuple[Phase, ...]:
    if not isinstance(value, list) or not value:
        raise PlanError(path, "must be a list of tables", fix="write [[phases]] and keys below it, once for each phase")
    found = tuple(_phase(folder, each, f"{path}[{place}]", place) for place, each in enumerate(value))
    names = [phase.name for phase in found]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise PlanError(f"{path}[{place}].name", f"{name!r} is the name of an earlier phase")
    return found


def _phase(folder: Path, value: Any, path: str, place: int) -> Phase:
    section = Section(path, value)
    options = PhasePlan(
        name=section.take("name", text, f"phase-{place + 1}"),
        concurrency=section.take("concurrency", whole(1), None),
        per_key=section.take("per_key", whole(1), None),
        rate=section.take("rate", _rate, ""),
        rate_per_key=section.take("rate_per_key", _rate, ""),
        lease=section.take("lease", positive_span, DEFAULT_LEASE),
        retry=section.take("retry", _retry, Retry()),
    )
    takes = section.take("takes", partial(_durations, folder))
    failures = section.take("failures", number(0, 1), 0.0)
    section.close()
    return Phase(options=options, takes=takes, failures=failures)


def _rate(value: Any, path: str) -> str:
    parse_rate(text(value, path), path)
    return str(value)


def _retry(value: Any, path: str) -> Retry:
    section = Section(path, value)
    default = Retry()
    found: dict[str, Any] = {
        "max_retries": section.take("max_retries", whole(0, 1000), default.max_retries),
        "wait": section.take("wait", _seconds, default.wait),
        "factor": section.take("factor", number(1, 100), default.factor),
        "jitter": section.take("jitter", number(0, 1), default.jitter),
        "max_rescues": section.take("max_rescues", whole(0, 1000), default.max_rescues),
    }
    section.close()
    return Retry(**found)


def _seconds(value: Any, path: str) -> float | str:
    return span(value, path).total_seconds()


def _durations(folder: Path, value: Any, path: str, least: int = 1) -> Durations:
    """'30s'; { p50 = '20s', p95 = '2m' } or with p99 (log-normal); { file = 'times.csv' } (measured)."""
    if not isinstance(value, dict):
        return fixed(millis(span(value, path)), least=least)
    section = Section(path, value)
    section.only_one("p50", "file")
    section.only_one("p95", "p99", "file")
    if section.has("file"):
        found = measured(read_durations(folder / section.take("file", text), section.path_of("file")))
    else:
        median = section.take("p50", positive_span)
        high = "p99" if section.has("p99") and not section.has("p95") else "p95"
        above = section.take(high, positive_span)
        if above < median:
            raise PlanError(section.path_of(high), "must not be below p50")
        found = log_normal(millis(median), millis(above), int(high[1:]) / 100)
    section.close()
    return found


def _workers(folder: Path, value: Any, path: str) -> tuple[Workers, int]:
    section = Section(path, value)
    slots = section.take("slots", whole(1, 10_000), 1)
    workers = Workers(
        count=section.take("count", whole(0, 100_000), -1),
        slots=slots,
        starts_in=section.take("starts_in", partial(_durations, folder, least=0), fixed(0, least=0)),
        claims_in=section.take("claims_in", span, timedelta(0)),
        dies_every=section.take("dies_every", positive_span, None),
        cost_per_hour=section.take("cost_per_hour", number(0, 1e6), 0.0),
    )
    section.close()
    return workers, slots


def _scaling(slots: int, value: Any, path: str) -> Scaling:
    """The settings of `onerow scale`; their durations may be text."""
    section = Section(path, value)
    every = section.take("every", positive_span, timedelta(seconds=30))
    given: dict[str, Any] = {}
    for field in msgspec.structs.fields(ScaleSettings):
        if field.name == "slots":
            continue
        if field.name == "mode":
            read: Any = text
        elif field.type is int:
            read = whole(0)
        else:
            read = _seconds
        if section.has(field.name):
            given[field.name] = section.take(field.name, read)
    section.close()
    if given.get("mode", "leases") not in ("leases", "inflight", "visible"):
        raise PlanError(f"{path}.mode", f"must be 'leases', 'inflight' or 'visible', not {given['mode']!r}")
    try:
        return Scaling(settings=ScaleSettings(slots=slots, **given), every=every)
    except BadInput as error:
        raise PlanError(f"{path}.{error.field}", str(error), fix=error.fix) from None
