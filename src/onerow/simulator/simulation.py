"""Run a plan."""

from onerow.simulator.fast_path import FastPath
from onerow.simulator.measurements import Result
from onerow.simulator.model import SimulatedPlan
from onerow.simulator.real_rules import RealRules


def simulate(plan: SimulatedPlan) -> Result:
    """Run a plan to its end; the same plan gives the same result."""
    return FastPath(plan).run() if len(plan.phases) == 1 else RealRules(plan).run()
