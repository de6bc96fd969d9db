"""The search of the cheapest plan."""

from datetime import timedelta

import pytest

from onerow.core.errors import BadInput
from onerow.core.rates import parse_rate
from onerow.core.scaling import ScaleSettings
from onerow.simulator.arrivals import Arrivals
from onerow.simulator.durations import fixed
from onerow.simulator.model import Scaling
from onerow.simulator.search import find_workers, read_condition, with_workers
from onerow.simulator.simulation import simulate
from tests.simulator.kit import phase, small_plan, workers

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


@pytest.mark.parametrize("text", ["p98<3s", "p99>3s", "p99<", "30s", "p99<soon"])
def test_a_condition_that_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--wait"):
        read_condition(text)
