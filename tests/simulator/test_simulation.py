"""What a simulation shows: waits, backlog, workers, cost, and the same answer for the same seed."""

from datetime import timedelta
from math import factorial, log

import pytest
from msgspec.structs import replace

from onerow.core.rates import Rate, parse_rate
from onerow.core.scaling import ScaleSettings
from onerow.simulator.arrivals import Arrivals
from onerow.simulator.durations import QUANTILES, Durations, fixed, log_normal
from onerow.simulator.model import Scaling
from onerow.simulator.real_rules import RealRules
from onerow.simulator.simulation import simulate
from tests.simulator.kit import phase, small_plan, workers


def test_the_same_seed_gives_the_same_answer_and_another_seed_another() -> None:
    plan = small_plan(
        phase(takes=log_normal(500, 3_000, 0.95), failures=0.1),
        arrivals=Arrivals(rate=parse_rate("5/s")),
        workers=workers(2, 2, dies_every=timedelta(seconds=30)),
    )
    assert simulate(plan) == simulate(plan)
    assert simulate(plan) != simulate(replace(plan, seed=2))


def test_the_answer_for_a_seed_stays_the_same_over_versions() -> None:
    plan = small_plan(
        phase(takes=log_normal(500, 3_000, 0.95), failures=0.1),
        arrivals=Arrivals(rate=parse_rate("5/s")),
        workers=workers(2, 2),
    )
    result = simulate(plan)
    assert (result.arrived, result.completed, result.retried, result.backlog) == (297, 229, 25, 61)


def test_work_that_fits_does_not_wait() -> None:
    result = simulate(small_plan())
    assert (result.arrived, result.completed, result.backlog) == (60, 59, 0)
    assert result.wait_p99 == 0


@pytest.mark.parametrize("phases", [1, 2])
def test_every_wait_is_longer_by_the_time_of_a_claim(phases: int) -> None:
    plan = small_plan(
        *(phase(f"p{number}", takes=fixed(600)) for number in range(phases)),
        arrivals=Arrivals(rate=parse_rate("4/s")),
        workers=workers(2, 2),
    )
    before, after = (
        simulate(plan),
        simulate(replace(plan, workers=replace(plan.workers, claims_in=timedelta(seconds=2)))),
    )
    for one, other in zip((before, *before.periods), (after, *after.periods), strict=True):
        for name in ("wait_p50", "wait_p95", "wait_p99"):
            waited = getattr(one, name)
            assert getattr(other, name) == (None if waited is None else pytest.approx(waited + 2))
    assert (before.completed, before.backlog) == (after.completed, after.backlog)


def test_work_that_does_not_fit_waits_longer_and_longer() -> None:
    result = simulate(small_plan(phase(takes=fixed(2000))))
    assert (result.arrived, result.completed, result.backlog) == (60, 29, 30)
    assert [result.periods[at].backlog for at in (9, 19, 29)] == [5, 10, 15]
    assert result.wait_p50 == pytest.approx(15, abs=1)  # those that still wait count with their waits so far
    assert result.most_backlog == 30


def test_the_random_arrivals_have_the_rate_of_the_plan() -> None:
    plan = small_plan(arrivals=Arrivals(rate=parse_rate("20/s")), lasts=timedelta(hours=1), period=timedelta(hours=1))
    assert simulate(plan).arrived == pytest.approx(72_000, rel=0.02)


@pytest.mark.parametrize("count, slots, load", [(1, 1, 0.7), (5, 1, 0.8), (2, 5, 0.9)])
def test_waits_and_backlog_are_those_of_the_erlang_c_formula(count: int, slots: int, load: float) -> None:
    """Poisson arrivals and exponential service times (M/M/c): the share of tasks that wait, and how long, are known."""
    places = count * slots
    per_second = load * places
    # The quantiles of an exponential distribution with a mean of one second.
    takes = Durations(tuple(max(1, round(-1000 * log(1 - (number + 0.5) / QUANTILES))) for number in range(QUANTILES)))
    plan = small_plan(
        phase(takes=takes),
        arrivals=Arrivals(rate=Rate(round(per_second * 1000), 1_000_000)),
        workers=workers(count, slots),
        lasts=timedelta(seconds=round(300_000 / per_second)),
        period=timedelta(seconds=100),
    )
    result = simulate(plan)
    offered = per_second**places / factorial(places) / (1 - load)
    waiting = offered / (sum(per_second**number / factorial(number) for number in range(places)) + offered)
    for found, share in ((result.wait_p50, 0.5), (result.wait_p95, 0.95)):
        expected = max(0.0, log(waiting / (1 - share)) / (places - per_second))
        assert found == pytest.approx(expected, rel=0.08, abs=0.01)
    # Little's law: the tasks that wait are the arrivals per second times the mean wait.
    backlog = sum(period.backlog for period in result.periods) / len(result.periods)
    assert backlog == pytest.approx(waiting * load / (1 - load), rel=0.15)
    running = sum(period.running for period in result.periods) / len(result.periods)
    assert running == pytest.approx(per_second, rel=0.05)


def test_a_daily_curve_is_followed_through_the_day() -> None:
    curve = (0.0,) * 8 + (1.0,) * 12 + (0.0,) * 4
    plan = small_plan(
        arrivals=Arrivals(random=False, rate=parse_rate("1/s"), curve=curve),
        lasts=timedelta(days=1),
        period=timedelta(hours=1),
    )
    periods = simulate(plan).periods
    assert [period.arrived for period in periods[:7]] == [0] * 7
    assert [period.arrived for period in periods[9:19]] == [3_600] * 10
    assert sum(period.arrived for period in periods) == pytest.approx(12 * 3_600, abs=1)


def test_a_worker_is_paid_from_its_launch_until_it_leaves() -> None:
    result = simulate(small_plan(workers=workers(3, cost_per_hour=60.0)))
    assert result.cost == pytest.approx(3.0)
    assert result.cost_per_thousand == pytest.approx(3.0 / 59 * 1000)
    assert result.periods[0].cost == pytest.approx(0.05)


def test_the_number_of_workers_follows_the_work() -> None:
    scaling = Scaling(
        settings=ScaleSettings(slots=1, minimum=1, maximum=5, scale_in_after=20.0, scale_in_cooldown=0.0),
        every=timedelta(seconds=5),
    )
    plan = small_plan(
        phase(takes=fixed(10_000)),
        arrivals=Arrivals(times=tuple(range(0, 30_000, 1000))),
        workers=workers(1, starts_in=fixed(4000)),
        scaling=scaling,
        lasts=timedelta(minutes=5),
    )
    result = simulate(plan)
    by_second = [period.workers for period in result.periods]
    assert by_second[7] == 1  # decided at 5 s, ready at 9 s
    assert max(by_second) == 5
    assert by_second[-1] == 1
    assert result.completed == 30
    running = [period.running for period in result.periods]
    assert all(busy <= count for busy, count in zip(running, by_second, strict=True))  # no busy worker was stopped


def test_a_dead_worker_of_a_fixed_number_is_replaced_after_its_start_time() -> None:
    plan = small_plan(
        workers=workers(4, dies_every=timedelta(seconds=30), starts_in=fixed(10_000)), lasts=timedelta(minutes=10)
    )
    result = simulate(plan)
    assert result.died > 20
    assert all(period.workers + period.starting == 4 for period in result.periods)
    assert min(period.workers for period in result.periods) < 4


def test_a_task_goes_through_all_phases_by_the_real_rules() -> None:
    plan = small_plan(
        phase("fetch"),
        phase("render", takes=fixed(3000), concurrency=1),
        phase("send", rate="1/5s"),
        workers=workers(9),
    )
    result = simulate(plan)
    assert result.method == "real rules"
    # The last phase starts a task at 4 s, 9 s … 59 s; the last one does not end in this minute.
    assert result.completed == 11
    assert result.backlog > 30  # they wait for the limit of the second phase


def test_the_real_rules_keep_memory_bounded() -> None:
    plan = small_plan(lasts=timedelta(minutes=10))
    simulation = RealRules(plan)
    assert simulation.run().completed == 599
    assert len(simulation._store._rows) == 1
