"""The pipelines of the simulation. What a task does stands in its payload; its handlers use virtual time."""

from typing import Any

from onerow import Pipeline, Retry
from onerow.engine.handler.context import Context
from tests.schedules.runners import Poison
from tests.schedules.world import current

LEASE = 3.0
PHASES = ("fetch", "approve", "store")

work = Pipeline("work")
part = Pipeline("part")


@work.phase(lease=LEASE, retry=Retry(6, wait="500ms", factor=1.0))
def fetch(job: dict[str, Any], ctx: Context) -> str:
    """Run for a while; fail the first attempts, kill the process, or wait for children, as the payload says."""
    if job["children"]:
        ctx.spawn(part, range(job["children"]))
        ctx.join()
    current().work(job["takes"])
    if job["poison"]:
        raise Poison
    if ctx.attempt <= job["failures"]:
        raise ConnectionError(f"failure {ctx.attempt}")
    return f"fetched {job['number']}"


@work.phase(lease=LEASE, retry=Retry(6, wait="500ms", factor=1.0, classes={"timeout": True}))
def approve(job: dict[str, Any], ctx: Context) -> str:
    """Wait for a signal, which may come after the wait has expired once or twice."""
    if job["signal_at"]:
        ctx.wait("approved", timeout="2s")
    current().work(0.1)
    return "approved"


@work.phase(lease=LEASE, concurrency=1)
def store(job: dict[str, Any]) -> str:
    """Run alone: the phase has one slot."""
    current().work(job["takes"])
    return f"stored {job['number']}"


@part.phase(lease=LEASE)
def piece(number: int) -> int:
    current().work(0.2)
    return number
