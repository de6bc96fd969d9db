"""The search of the cheapest plan."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onerow.core.errors import BadInput
from onerow.core.rates import parse_rate
from onerow.core.scaling import ScaleSettings
from onerow.simulator.arrivals import Arrivals
from onerow.simulator.durations import fixed, log_normal
from onerow.simulator.model import Scaling, SimulatedPlan
from onerow.simulator.search import Condition, find_workers, read_condition, with_workers
from onerow.simulator.simulation import simulate
from tests.simulator.kit import one_phase_plans, phase, small_plan, workers

BUSY = small_plan(
    phase(takes=fixed(1000)),
    arrivals=Arrivals(rate=parse_rate("20/s")),
    lasts=timedelta(minutes=5),
    period=timedelta(minutes=1),
)


def test_the_search_finds_the_fewest_workers_that_are_enough() -> None:
    condition = read_condition("p99<2s")
    found = find_workers(BUSY, condition)
    assert found.workers is not None
    assert condition.holds(simulate(with_workers(BUSY, found.workers)))
    assert not condition.holds(simulate(with_workers(BUSY, found.workers - 1)))
    assert found.result == simulate(with_workers(BUSY, found.workers))
    assert found.simulations == len(found.tried) <= 11
    assert 20 <= found.workers <= 32


def test_the_search_says_if_no_number_of_workers_is_enough() -> None:
    found = find_workers(small_plan(phase(concurrency=1, takes=fixed(5000))), read_condition("p99<2s"))
    assert (found.workers, found.result) == (None, None)
    assert found.simulations == 2


def test_the_search_changes_the_maximum_of_a_plan_that_scales() -> None:
    scaling = Scaling(settings=ScaleSettings(slots=1, minimum=1, maximum=3), every=timedelta(seconds=5))
    plan = small_plan(
        phase(takes=fixed(4000)), workers=workers(1, starts_in=fixed(1000)), scaling=scaling, lasts=timedelta(minutes=5)
    )
    found = find_workers(plan, read_condition("p95 <= 10s"))
    assert found.what == "scaling.maximum"
    assert found.workers is not None
    assert found.workers >= 4


def fewest(plan: SimulatedPlan, condition: Condition, most: int) -> int | None:
    """Try every number of workers."""
    least = 1 if plan.scaling is None else max(1, plan.scaling.settings.minimum)
    return next(
        (count for count in range(least, most + 1) if condition.holds(simulate(with_workers(plan, count)))), None
    )


@pytest.mark.parametrize("dies_every", [None, timedelta(hours=1)])
def test_a_burst_that_needs_many_workers_is_found(dies_every: timedelta | None) -> None:
    # Two workers take two of the 200 tasks: the median and the 99th percentile are those of one worker.
    burst = small_plan(
        phase(takes=fixed(120_000)), arrivals=Arrivals(times=(0,) * 200), workers=workers(dies_every=dies_every)
    )
    condition = read_condition("p50<1s")
    found = find_workers(burst, condition)
    assert found.workers == fewest(burst, condition, 200)
    assert found.workers in range(100, 110)


def test_the_search_ends_when_slots_were_always_free() -> None:
    # Chance differs with the number of workers, because some die; but none of the tasks waits for a slot.
    plan = small_plan(
        phase(takes=log_normal(800, 2_000, 0.95), rate="1/5s"),
        arrivals=Arrivals(rate=parse_rate("2/s")),
        workers=workers(1, dies_every=timedelta(seconds=20), starts_in=fixed(1_000)),
        lasts=timedelta(minutes=5),
    )
    found = find_workers(plan, read_condition("p50<1s"))
    assert found.workers is None
    assert found.tried[-1].workers <= 16


@given(one_phase_plans(), st.sampled_from(["p50<100ms", "p95<=1s", "p99<3s"]))
@settings(max_examples=40)
def test_the_search_agrees_with_every_number_of_workers(plan: SimulatedPlan, text: str) -> None:
    condition = read_condition(text)
    found = find_workers(plan, condition)
    if found.workers is None:
        # A slot was always free, so that more workers are different by chance only, in when they die.
        assert plan.workers.dies_every is not None or fewest(plan, condition, 40) is None
    else:
        assert condition.holds(simulate(with_workers(plan, found.workers)))
        fewer = [tried for tried in found.tried if tried.workers == found.workers - 1]
        assert all(not tried.enough for tried in fewer)


@pytest.mark.parametrize("text", ["p98<3s", "p99>3s", "p99<", "30s", "p99<soon"])
def test_a_condition_that_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--wait"):
        read_condition(text)
