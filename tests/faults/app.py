"""The app that the fault tests let a real worker run; what its handlers do stands in their payload."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from onerow import Context, Pipeline, Queue, Retry

queue = Queue(os.environ.get("FAULTS_STORE", "sqlite:///faults.db"))

FOREVER = 600


def note(what: str, ctx: Context | None = None, **more: object) -> None:
    """A line in a file that the test reads: who did what, in which process."""
    folder = os.environ["FAULTS_NOTES"]
    words = [what, str(os.getpid()), "" if ctx is None else ctx.task_id, "" if ctx is None else str(ctx.attempt)]
    words += [f"{name}={value}" for name, value in more.items()]
    with open(Path(folder) / "notes.txt", "a") as file:
        file.write(" ".join(words) + "\n")


def first_time(ctx: Context) -> bool:
    """Whether no other process was lost over this task yet."""
    return ctx.task.crash_count == 0 and ctx.attempt == 1


slow = Pipeline("slow")
"""Sleeps in its first attempt, for as long as the payload says."""


@slow.phase(lease="2s", retry=Retry(0), timeout="10m")
async def in_loop(job: dict[str, Any], ctx: Context) -> str:
    note("begin", ctx)
    if job["kind"] == "async" and first_time(ctx):
        await asyncio.sleep(job.get("for", FOREVER))
    note("end", ctx)
    return "in_loop"


@slow.phase(lease="2s", retry=Retry(0), timeout="10m")
def in_thread(job: dict[str, Any], ctx: Context) -> str:
    note("begin", ctx)
    if job["kind"] == "thread" and first_time(ctx):
        until = time.monotonic() + job.get("for", FOREVER)
        while time.monotonic() < until:
            time.sleep(0.02)
    note("end", ctx)
    return "in_thread"


@slow.phase(lease="2s", retry=Retry(0), timeout="10m", isolate="process")
def in_process(job: dict[str, Any], ctx: Context) -> str:
    note("begin", ctx)
    if job["kind"] == "isolated" and first_time(ctx):
        time.sleep(job.get("for", FOREVER))
    note("end", ctx)
    return "in_process"


stubborn = Pipeline("stubborn")
"""Won't end by itself, nor when asked."""


@stubborn.phase(lease="2s", isolate="process", timeout="10m")
def ignores_term(job: dict[str, Any], ctx: Context) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    script = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid(); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", script])
    note("begin", ctx, grandchild=child.pid)
    while True:
        try:
            time.sleep(FOREVER)
        except BaseException:  # not even this ends it
            continue


hanging = Pipeline("hanging")
"""Hangs where nobody can reach it, in the tasks whose payload says so."""


@hanging.phase(concurrency=1, timeout="1s", lease="2s", retry=Retry(0))
def thread(job: bool, ctx: Context) -> str:
    note("begin", ctx)
    if job:
        time.sleep(FOREVER)
    return "fine"


blocking = Pipeline("blocking")


@blocking.phase(timeout="1s", lease="2s", retry=Retry(0))
async def loop(job: bool, ctx: Context) -> str:
    note("begin", ctx)
    if job:
        time.sleep(FOREVER)
    await asyncio.sleep(0.01)
    return "fine"


poison = Pipeline("poison")
"""Kills the process it runs in, in the tasks whose payload says so."""


@poison.phase(lease="2s")
async def drink(job: bool, ctx: Context) -> str:
    note("begin", ctx)
    if job:
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.2)
    return "fine"


quick = Pipeline("quick")
"""Two phases that do next to nothing, one of them limited."""


@quick.phase
async def first(job: int) -> int:
    return job + 1


@quick.phase(concurrency=2)
def second(job: int, first: int) -> int:
    return first + 1


limited = Pipeline("limited")
"""At most four at once and two of a key; then one by one."""


@limited.phase(lease="5s", concurrency=4, per_key=2)
def both(job: dict[str, float], ctx: Context) -> None:
    note("enter", ctx, phase="both")
    time.sleep(job["for"])
    note("leave", ctx, phase="both")


@limited.phase(lease="5s", concurrency=1)
async def one(job: dict[str, float], ctx: Context) -> None:
    note("enter", ctx, phase="one")
    await asyncio.sleep(job["for"] / 5)
    note("leave", ctx, phase="one")


leaves = Pipeline("leaves")
tree = Pipeline("tree")
"""A parent that stops for a while where its payload says, so that it can be killed there."""

LEAVES = 550


@leaves.phase(lease="2s")
async def grow(job: int, ctx: Context) -> int:
    if job == 200:
        note("growing", ctx)
    await asyncio.sleep(0.02)  # long enough that few of them lie claimed and not begun
    return job


@tree.phase(lease="2s")
def branch(job: str, ctx: Context) -> Any:
    def pause(where: str) -> None:
        if job == where and first_time(ctx):
            note(where, ctx)
            time.sleep(FOREVER)

    def numbers() -> Any:
        for number in range(LEAVES):
            if number == 520:
                pause("midst")
            yield number

    def plant() -> str:
        note("planted", ctx)
        return "yes"

    planted = ctx.step("plant", plant)
    pause("step")
    count = ctx.spawn(leaves, numbers())
    pause("spawned")
    tally = ctx.join(all_must_succeed=True)
    if job == "joined" and ctx.task.crash_count == 0:
        note("joined", ctx)
        time.sleep(FOREVER)
    return [planted, count, tally.completed]


hanging = Pipeline("hanging")
"""Blocks its thread without end where the payload says so, in a call that no exception interrupts."""


@hanging.phase(lease="30s", timeout="2s")
def hang(job: dict[str, Any], ctx: Context) -> str:
    note("begin", ctx)
    if job["hangs"]:
        time.sleep(1e6)
    return "done"
