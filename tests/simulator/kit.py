"""Small plans for the tests."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from onerow.core.plan import PhasePlan
from onerow.core.rates import Rate, parse_rate
from onerow.core.retry import Retry
from onerow.core.scaling import ScaleSettings
from onerow.simulator.arrivals import Arrivals
from onerow.simulator.durations import Durations, fixed, log_normal
from onerow.simulator.model import Phase, Scaling, SimulatedPlan, Workers


def phase(name: str = "work", takes: Durations | None = None, failures: float = 0.0, **options: Any) -> Phase:
    return Phase(options=PhasePlan(name=name, **options), takes=takes or fixed(1000), failures=failures)


def workers(count: int = 1, slots: int = 1, **options: Any) -> Workers:
    return Workers(count=count, slots=slots, **{"starts_in": fixed(60_000)} | options)


def small_plan(*phases: Phase, **changes: Any) -> SimulatedPlan:
    """A plan of a minute with an arrival each second, one worker with one slot, and figures for each second."""
    given: dict[str, Any] = {
        "name": "plan",
        "arrivals": Arrivals(random=False, rate=parse_rate("1/s")),
        "phases": phases or (phase(),),
        "workers": workers(),
        "lasts": timedelta(minutes=1),
        "period": timedelta(seconds=1),
    }
    return SimulatedPlan(**given | changes)


def _seconds(least: int, most: int) -> st.SearchStrategy[timedelta]:
    return st.integers(least, most).map(lambda number: timedelta(seconds=number))


_DURATIONS = st.one_of(
    st.integers(1, 3_000).map(fixed),
    st.tuples(st.integers(1, 2_000), st.floats(1.2, 8)).map(lambda pair: log_normal(pair[0], pair[0] * pair[1], 0.95)),
)
_RATES = st.one_of(
    st.just(""), st.tuples(st.integers(1, 8), st.integers(1, 9)).map(lambda pair: f"{pair[0]}/{pair[1]}s")
)
_RETRIES = st.builds(
    Retry,
    max_retries=st.integers(0, 3),
    wait=st.sampled_from(["0s", "1ms", "700ms", "3s"]),
    factor=st.sampled_from([1.0, 3.0]),
    jitter=st.sampled_from([0.0, 0.3]),
    max_rescues=st.integers(0, 2),
)
_ARRIVALS = st.one_of(
    st.builds(Arrivals, random=st.booleans(), rate=st.builds(Rate, st.integers(1, 12), st.integers(500, 3_000))),
    # Many tasks arrive in the same instants, so that order within an instant matters.
    st.lists(st.integers(0, 40).map(lambda number: number * 500), max_size=60).map(
        lambda times: Arrivals(times=tuple(sorted(times)))
    ),
)


@st.composite
def one_phase_plans(draw: st.DrawFn, *, dying: bool = False) -> SimulatedPlan:
    """Plans of one phase with every kind of limit, failure, death and scaling, over some seconds.

    dying: workers are busy and live a few seconds, less than many attempts, so that most deaths cost attempts.
    """
    slots = draw(st.integers(1, 3))
    rates = st.just("") if dying else _RATES
    options = PhasePlan(
        name="work",
        concurrency=draw(st.one_of(st.none(), st.integers(2 if dying else 1, 5))),
        per_key=draw(st.one_of(st.none(), st.integers(1, 2))),
        rate=draw(rates),
        rate_per_key=draw(rates),
        retry=draw(_RETRIES),
        lease=draw(_seconds(1, 2 if dying else 4)),
    )
    if dying:
        takes = draw(st.integers(1_000, 5_000).map(fixed))
        arrivals = Arrivals(rate=Rate(draw(st.integers(2, 6)), 1_000))
        dies_every: timedelta | None = draw(_seconds(1, 4))
    else:
        takes = draw(_DURATIONS)
        arrivals = draw(_ARRIVALS)
        dies_every = draw(st.one_of(st.none(), _seconds(2, 20)))
    return SimulatedPlan(
        name="plan",
        arrivals=arrivals,
        phases=(Phase(options=options, takes=takes, failures=draw(st.sampled_from([0.0, 0.2, 0.9]))),),
        workers=Workers(
            count=draw(st.integers(2 if dying else 0, 4)),
            slots=slots,
            starts_in=draw(st.one_of(st.just(fixed(0, least=0)), _DURATIONS)),
            dies_every=dies_every,
            cost_per_hour=0.5,
        ),
        scaling=draw(st.one_of(st.none(), _scaling(slots))),
        lasts=draw(_seconds(10, 15) if dying else _seconds(3, 20)),
        period=timedelta(milliseconds=draw(st.sampled_from([250, 1000]))),
        seed=draw(st.integers(0, 5)),
        keys=draw(st.sampled_from([(), (1.0,), (1.0, 1.0, 1.0), (5.0, 1.0)])),
    )


def _scaling(slots: int) -> st.SearchStrategy[Scaling]:
    return st.builds(
        Scaling,
        settings=st.builds(
            ScaleSettings,
            slots=st.just(slots),
            minimum=st.integers(0, 2),
            maximum=st.integers(2, 6),
            warm_pool=st.integers(0, 1),
            target_wait=st.sampled_from([None, 0.5, 5.0]),
            scale_in_after=st.sampled_from([0.0, 2.0]),
            scale_in_cooldown=st.sampled_from([0.0, 1.0]),
            mode=st.sampled_from(["leases", "inflight", "visible"]),
        ),
        every=st.sampled_from([timedelta(milliseconds=500), timedelta(seconds=2)]),
    )
