"""Search the cheapest plan: the smallest number of workers with which tasks wait no longer than wanted."""

import re
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from onerow.core.durations import parse_duration
from onerow.core.errors import BadInput
from onerow.simulator.measurements import Result
from onerow.simulator.model import MOST_SLOTS, SimulatedPlan
from onerow.simulator.simulation import simulate

_CONDITION = re.compile(r"\s*(p50|p95|p99)\s*(<=?)\s*(\S.*)")
MOST_WORKERS = 65_536


class Condition(msgspec.Struct, frozen=True):
    """A bound of a quantile of the wait times, in seconds."""

    text: str
    quantile: str  # 'p99'
    below: float
    or_equal: bool

    def wait(self, result: Result) -> float | None:
        found: float | None = getattr(result, f"wait_{self.quantile}")
        return found

    def holds(self, result: Result) -> bool:
        """Whether the waits are short enough; without any task that waited or started, they are."""
        found = self.wait(result)
        return found is None or found < self.below or (self.or_equal and found == self.below)


def read_condition(text: str) -> Condition:
    """Read a condition such as 'p99<30s'."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise BadInput(
            f"--wait: can't read the condition {text!r}",
            fix="write it like 'p99<30s', with p50, p95 or p99",
            field="wait",
        )
    below = parse_duration(found[3], "--wait").total_seconds()
    return Condition(f"{found[1]} {found[2]} {found[3].strip()}", found[1], below, found[2] == "<=")


class Tried(msgspec.Struct, frozen=True):
    """One simulation of a search."""

    workers: int
    wait: float | None
    backlog: int
    cost: float
    enough: bool


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a search."""

    condition: str
    what: str  # 'workers', or 'scaling.maximum' for a plan that scales
    workers: int | None  # None: no number of workers is enough
    most: int  # workers that would have been tried
    simulations: int
    tried: tuple[Tried, ...]
    result: Result | None


def find_workers(
    plan: SimulatedPlan, condition: Condition, progress: Callable[[Tried], None] = lambda tried: None
) -> Found:
    """Return the smallest number of workers that is enough: double it until it is, then bisect.

    In a plan that scales, the number is the maximum of the scaling decision.
    """
    results: dict[int, Result] = {}
    tried: list[Tried] = []

    def enough(count: int) -> bool:
        if count not in results:
            result = results[count] = simulate(with_workers(plan, count))
            tried.append(Tried(count, condition.wait(result), result.backlog, result.cost, condition.holds(result)))
            progress(tried[-1])
        return condition.holds(results[count])

    most = min(MOST_WORKERS, MOST_SLOTS // plan.workers.slots)
    least = 1 if plan.scaling is None else max(1, plan.scaling.settings.minimum)
    low, high = least - 1, least
    best: int | None = None
    while best is None:
        if enough(high):
            best = high
        elif high >= most or not _more_may_help(plan, high, results[high]):
            break
        else:
            low, high = high, min(high * 2, most)
    while best is not None and best - low > 1:
        middle = (low + best) // 2
        if enough(middle):
            best = middle
        else:
            low = middle
    return Found(
        condition=condition.text,
        what="workers" if plan.scaling is None else "scaling.maximum",
        workers=best,
        most=most,
        simulations=len(tried),
        tried=tuple(sorted(tried, key=lambda each: each.workers)),
        result=None if best is None else results[best],
    )


def with_workers(plan: SimulatedPlan, count: int) -> SimulatedPlan:
    """Return the plan with another number of workers, or with another maximum if it scales."""
    if plan.scaling is None:
        return replace(plan, workers=replace(plan.workers, count=count))
    settings = replace(plan.scaling.settings, maximum=count)
    first = min(plan.workers.count, count)
    return replace(plan, scaling=replace(plan.scaling, settings=settings), workers=replace(plan.workers, count=first))


def _more_may_help(plan: SimulatedPlan, count: int, result: Result) -> bool:
    """Whether a task may have waited for a slot that more workers, or a larger maximum, would have had."""
    if not result.lacked_slots:
        return False
    return plan.scaling is None or result.reached_maximum or count < plan.workers.count
