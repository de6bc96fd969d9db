"""The fast path gives the answers of the real rules."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given

from onerow.core import rates
from onerow.core.rates import Rate, Verdict, Window, parse_rate
from onerow.core.retry import Retry
from onerow.simulator.arrivals import Arrivals
from onerow.simulator.durations import fixed
from onerow.simulator.fast_path import FastPath
from onerow.simulator.measurements import Result
from onerow.simulator.model import SimulatedPlan
from onerow.simulator.real_rules import RealRules
from tests.simulator.kit import one_phase_plans, phase, small_plan, workers


def assert_equal(plan: SimulatedPlan) -> Result:
    """Both ways of running a plan give the same figures in every period."""
    fast, real = FastPath(plan).run(), RealRules(plan).run()
    for period, expected in zip(fast.periods, real.periods, strict=True):
        assert period == expected
    names = [name for name in Result.__struct_fields__ if name not in ("method", "periods")]
    assert {name: getattr(fast, name) for name in names} == {name: getattr(real, name) for name in names}
    return fast


@given(one_phase_plans())
def test_the_fast_path_equals_the_real_rules(plan: SimulatedPlan) -> None:
    assert_equal(plan)


@given(one_phase_plans(dying=True))
def test_they_are_equal_when_workers_die_often(plan: SimulatedPlan) -> None:
    assert_equal(plan)


def test_a_task_that_its_rate_put_off_starts_at_its_time_and_not_before() -> None:
    # Five tasks of one key arrive at once; one may start in ten seconds.
    plan = small_plan(phase(rate_per_key="1/10s"), arrivals=Arrivals(times=(0,) * 5), workers=workers(5), keys=(1.0,))
    result = assert_equal(plan)
    assert [period.at for period in result.periods if period.started] == [1, 11, 21, 31, 41]
    # The others wait for the rate: they are backlog, and their waits are those from their arrival.
    assert [result.periods[at].backlog for at in (0, 10, 20, 30, 40)] == [4, 3, 2, 1, 0]
    assert [period.wait_p50 for period in result.periods if period.started] == [
        pytest.approx(waited, rel=0.01) for waited in (0, 10, 20, 30, 40)
    ]
    assert not result.lacked_slots


def test_a_decision_about_rates_per_key_looks_at_the_keys_of_its_tasks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    admit, seen = rates.admit, []

    def counted(window: Window, keys: Sequence[str], whole: Rate | None, each: Rate | None, now: int) -> Verdict:
        seen.append(len(window.keys) - len(set(keys)))
        return admit(window, keys, whole, each, now)

    plan = small_plan(
        phase(rate_per_key="1/20s"),
        arrivals=Arrivals(rate=parse_rate("20/s")),
        workers=workers(30),
        lasts=timedelta(minutes=2),
        keys=(1.0,) * 300,
    )
    assert_equal(plan)
    monkeypatch.setattr(rates, "admit", counted)
    FastPath(plan).run()
    assert max(seen) <= 0


def test_tasks_that_their_rate_puts_off_to_the_end_count_with_their_waits_so_far() -> None:
    plan = small_plan(phase(rate_per_key="1/h"), arrivals=Arrivals(times=(0,) * 5), workers=workers(5), keys=(1.0,))
    result = assert_equal(plan)
    assert (result.completed, result.backlog) == (1, 4)
    assert result.wait_p95 == pytest.approx(60, rel=0.01)


def test_a_task_in_back_off_starts_at_its_time_and_not_before() -> None:
    retry = Retry(max_retries=2, wait="10s", factor=2, jitter=0)
    plan = small_plan(phase(failures=1.0, retry=retry), arrivals=Arrivals(times=(0,)), workers=workers(3))
    result = assert_equal(plan)
    # It runs for a second each time: 0, 1 + 10, 12 + 20.
    assert [period.at for period in result.periods if period.started] == [1, 12, 33]
    assert (result.retried, result.failed, result.completed) == (2, 1, 0)


def test_the_attempts_of_a_dead_worker_end_nothing_and_start_again_after_their_lease() -> None:
    plan = small_plan(
        phase(takes=fixed(30_000), lease=timedelta(seconds=5)),
        arrivals=Arrivals(times=(0, 0)),
        workers=workers(1, 2, dies_every=timedelta(seconds=20), starts_in=fixed(1000)),
        seed=3,
        lasts=timedelta(minutes=5),
    )
    result = assert_equal(plan)
    assert result.died > 0
    assert result.rescued > 0
    death = next(period.at for period in result.periods if period.died)
    rescue = next(period.at for period in result.periods if period.rescued)
    assert rescue - death == 5
    assert result.completed == 2


def test_a_key_at_its_limit_does_not_hold_up_other_keys() -> None:
    plan = small_plan(
        phase(takes=fixed(10_000), per_key=1), arrivals=Arrivals(times=(0,) * 40), workers=workers(10), keys=(9.0, 1.0)
    )
    result = assert_equal(plan)
    assert [period.running for period in result.periods[:2]] == [2, 2]
