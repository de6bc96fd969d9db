"""Handlers that run in their own processes, and so must be module-level functions."""

import asyncio
import logging
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

from onerow import AsyncContext, Context, Permanent, Pipeline, RateLimited, Retry, Snooze


@dataclass
class Clip:
    path: str
    length: float = 0.0


def make() -> Pipeline:
    """One phase, which does what the payload says."""
    pipeline = Pipeline("isolated")
    pipeline.phase(isolate="process", retry=Retry(1, wait="10ms"), timeout="60s")(act)
    return pipeline


def make_async() -> Pipeline:
    pipeline = Pipeline("isolated")
    pipeline.phase(isolate="process", retry=Retry(1, wait="10ms"), name="act", timeout="60s")(act_async)
    return pipeline


def make_chain() -> Pipeline:
    pipeline = Pipeline("chain")
    pipeline.phase(isolate="process")(cut)
    pipeline.phase(isolate="process")(join)
    return pipeline


def act(job: dict[str, Any], ctx: Context | AsyncContext) -> Any:
    match job["do"]:
        case "return":
            return {"value": job["value"], "pid": os.getpid(), "key": ctx.idempotency_key, "token": ctx.token}
        case "speak":
            print("출력 on stdout")
            print("on stderr", file=sys.stderr)
            os.write(1, b"from below\n")
            logging.getLogger("studio").warning("a record")
            ctx.log("a note", level="warning")
            ctx.progress(1, 2, "half")
            print("no end of line", end="")
        case "raise":
            raise ConnectionError("no net")
        case "step":
            assert isinstance(ctx, Context)
            ctx.step("fetch", fetch)
        case "permanent":
            raise Permanent("hopeless")
        case "limited":
            raise RateLimited("1h")
        case "snooze":
            raise Snooze("1h")
        case "exit":
            sys.exit(3)
        case "large":
            return "x" * 2_000_000
        case "unstorable":
            return {"n": float("nan")}
        case "eat":
            eaten = b"x" * job["bytes"]
            time.sleep(600 if job["forever"] else 0)
            return len(eaten)
        case "die":
            os._exit(9)
        case "sleep":
            print("asleep", flush=True)
            time.sleep(600)
        case "check":
            print("asleep", flush=True)
            try:
                for _ in ctx.track(range(60_000)):
                    time.sleep(0.01)
            finally:
                print("cleaned up", flush=True)
    return None


async def act_async(job: dict[str, Any], ctx: AsyncContext) -> Any:
    if job["do"] == "sleep":
        print("asleep", flush=True)
        try:
            await asyncio.sleep(600)
        finally:
            print("cleaned up", flush=True)
    await asyncio.sleep(0)
    return act(job, ctx)


def fetch() -> None:
    raise ConnectionError("no net")


def cut(job: Clip) -> Clip:
    assert isinstance(job, Clip)
    return Clip(job.path + ".cut", job.length / 2)


def join(job: Clip, cut: Clip) -> str:
    assert isinstance(cut, Clip)
    return f"{job.path} → {cut.path} of {cut.length}"
