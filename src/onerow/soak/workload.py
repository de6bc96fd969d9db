"""The app of the soak's workers: `onerow worker onerow.soak.workload`. Payloads say what a body does; each one is recorded.

Every environment variable that it reads begins with ONEROW_SOAK_; `crew.py` sets them.
"""

import asyncio
import hashlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from onerow.core.outcomes import Permanent
from onerow.core.retry import Retry
from onerow.engine.handler.context import AsyncContext, BaseContext, Context
from onerow.pipelines.pipeline import Pipeline
from onerow.soak import hooks
from onerow.soak.records import Recorder

FOLDER, STORE, LEASE, RELEASE = "ONEROW_SOAK_FOLDER", "ONEROW_SOAK_STORE", "ONEROW_SOAK_LEASE", "ONEROW_SOAK_RELEASE"
PHASES = ("fetch", "encode", "store", "audit")
"""The phases in order; the last one exists only in the second release."""
CHILDREN = 3
KEY_LIMIT, PHASE_LIMIT, RATE = 2, 8, 400

_lease = os.environ.get(LEASE, "5s")
_retry = Retry(3, wait="100ms")
_recorders: dict[int, Recorder] = {}


def recorder() -> Recorder:
    """Return the recorder of this process."""
    pid = os.getpid()
    if pid not in _recorders:
        kind = "bodies" if hooks.in_worker else "isolated"
        _recorders[pid] = Recorder(Path(os.environ[FOLDER]), f"{kind}-{pid}-{time.monotonic_ns()}")
    return _recorders[pid]


def digest(value: Any) -> str:
    """Return a short hash of a JSON value."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:12]


def worker_pid(name: str) -> int:
    """Return the pid in the name of a worker."""
    return int(name.rsplit("-", 2)[1])


@contextmanager
def body(job: Any, ctx: BaseContext) -> Iterator[dict[str, Any]]:
    """Record begin and end of a body; it puts its result into the dictionary."""
    common = _common(ctx)
    recorder().write("begin", hash=digest(job), name="" if hooks.in_worker else "isolated", **common)
    result: dict[str, Any] = {"phase": ctx.phase, "token": ctx.token}
    try:
        yield result
    except Exception:
        recorder().write("end", outcome="failed", **common)
        raise
    except BaseException:  # cancelled, parked or stopped
        recorder().write("end", outcome="stopped", **common)
        raise
    recorder().write("end", outcome="done", hash=digest(result), **common)


def _common(ctx: BaseContext) -> dict[str, Any]:
    """Return the fields that begin and end have in common; the pid is always that of the worker."""
    task = ctx.task
    worker = task.leased_by or ""
    return {
        "task": task.task_id, "phase": task.phase, "worker": worker, "pid": worker_pid(worker), "token": task.token,
        "attempt": task.attempt, "key": task.limit_key,
    }  # fmt: skip


def misbehave(job: dict[str, Any], ctx: BaseContext) -> None:
    """Raise or die in the phase and the way that the payload says."""
    if job.get("in") != ctx.phase:
        return
    match job["kind"]:
        case "flaky" if ctx.task.retry_count == 0:
            raise ValueError("this attempt fails, the next one does not")
        case "failing":
            raise Permanent("this task always fails")
        case "poison":
            if hooks.in_worker:
                recorder().write("fault", name="kill", pid=os.getpid(), task=ctx.task_id)
            else:
                recorder().write("end", outcome="crashed", **_common(ctx))
            os.kill(os.getpid(), signal.SIGKILL)


soak = Pipeline("soak")
leaves = Pipeline("soak-leaves")
ticks = Pipeline("soak-ticks")
ticks.cron("* * * * * *", name="each second", catch_up="all")


@soak.phase(lease=_lease, retry=_retry, timeout="2m", rate=f"{RATE}/s")
async def fetch(job: dict[str, Any], ctx: AsyncContext) -> dict[str, Any]:
    with body(job, ctx) as result:
        hooks.block_if_asked(recorder())
        misbehave(job, ctx)
        await asyncio.sleep(job["for"])
    return result


@soak.phase(lease=_lease, retry=_retry, timeout="2m", per_key=KEY_LIMIT)
def encode(job: dict[str, Any], ctx: Context) -> dict[str, Any]:
    with body(job, ctx) as result:
        misbehave(job, ctx)
        if job["kind"] == "parent":
            ctx.spawn(leaves, [{"for": job["for"], "leaf": number} for number in range(CHILDREN)])
            tally = ctx.join()
            result["children"] = tally.completed + tally.failed + tally.cancelled
        for wait in ("first", "second") if job["kind"] == "signals" else ():
            taken = ctx.wait("go")
            recorder().write("signal taken", task=ctx.task_id, hash=str(taken), name=wait)
        until = time.monotonic() + job["for"]
        while time.monotonic() < until:
            time.sleep(0.01)
    return result


@soak.phase(lease=_lease, retry=_retry, timeout="2m", concurrency=PHASE_LIMIT)
async def store(job: dict[str, Any], ctx: AsyncContext) -> dict[str, Any]:
    with body(job, ctx) as result:
        misbehave(job, ctx)
        await asyncio.sleep(job["for"] / 4)
    return result


if os.environ.get(RELEASE, "1") == "2":

    @soak.phase(lease=_lease, retry=_retry, timeout="2m")
    async def audit(job: dict[str, Any], ctx: AsyncContext) -> dict[str, Any]:
        with body(job, ctx) as result:
            pass
        return result


@leaves.phase(lease=_lease, retry=_retry, timeout="2m")
async def leaf(job: dict[str, Any], ctx: AsyncContext) -> dict[str, Any]:
    with body(job, ctx) as result:
        await asyncio.sleep(job["for"])
    return result


@ticks.phase(lease=_lease)
async def tick(job: Any) -> None: ...


if hooks.in_worker:  # the process of an isolated attempt starts faster without the store
    from onerow.wiring import Queue, open_store

    queue = Queue(hooks.hooked(open_store(os.environ[STORE])))
