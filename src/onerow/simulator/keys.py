"""The limit keys of simulated tasks."""

from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from random import Random

from onerow.simulator.model import SimulatedPlan


def key_stream(plan: SimulatedPlan) -> Callable[[], str]:
    """Return a function that draws the limit key of the next task."""
    draw = Random(f"{plan.seed}/keys").random
    if not plan.keys:
        return lambda: ""
    names = [f"key-{number}" for number in range(len(plan.keys))]
    below = list(accumulate(plan.keys))
    return lambda: names[bisect(below, draw() * below[-1], hi=len(below) - 1)]
