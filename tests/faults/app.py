"""The app of the fault tests' workers; payloads say what its handlers do."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from onerow import AsyncContext, Context, Item, Pipeline, Queue, Retry

queue = Queue(os.environ.get("FAULTS_STORE", "sqlite:///faults.db"))

FOREVER = 600


def note(what: str, ctx: Context | AsyncContext | None = None, **more: object) -> None:
    """Append a line to a file that the test reads: what happened, in which process and attempt."""
    folder = os.environ["FAULTS_NOTES"]
    words = [what, str(os.getpid()), "" if ctx is None else ctx.task_id, "" if ctx is None else str(ctx.attempt)]
    words += [f"{name}={value}" for name, value in more.items()]
    with open(Path(folder) / "notes.txt", "a") as file:
        file.write(" ".join(words) + "\n")


def first_time(ctx: Context | AsyncContext) -> bool:
    """Whether no process has died while running this task."""
    return not ctx.task.suspect and ctx.attempt == 1


slow = Pipeline("slow")
"""Sleeps in its first attempt, for as long as the payload says."""


@slow.phase(lease="8s", retry=Retry(0), timeout="10m")
async def in_loop(job: dict[str, Any], ctx: AsyncContext) -> str:
    note("begin", ctx)
    if job["kind"] == "async" and first_time(ctx):
        await asyncio.sleep(job.get("for", FOREVER))
    note("end", ctx)
    return "in_loop"


@slow.phase(lease="8s", retry=Retry(0), timeout="10m")
def in_thread(job: dict[str, Any], ctx: Context) -> str:
    note("begin", ctx)
    if job["kind"] == "thread" and first_time(ctx):
        until = time.monotonic() + job.get("for", FOREVER)
        while time.monotonic() < until:
            time.sleep(0.02)
    note("end", ctx)
    return "in_thread"


@slow.phase(lease="8s", retry=Retry(0), timeout="10m", isolate="process")
def in_process(job: dict[str, Any], ctx: Context) -> str:
    note("begin", ctx)
    if job["kind"] == "isolated" and first_time(ctx):
        time.sleep(job.get("for", FOREVER))
    note("end", ctx)
    return "in_process"


stubborn = Pipeline("stubborn")
"""Does not end by itself, and ignores a stop."""


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
"""Hangs in a call that cannot be interrupted, in the tasks whose payload says so."""


@hanging.phase(concurrency=1, timeout="1s", lease="2s", retry=Retry(0))
def thread(job: bool, ctx: Context) -> str:
    note("begin", ctx)
    if job:
        time.sleep(FOREVER)
    return "fine"


blocking = Pipeline("blocking")


@blocking.phase(timeout="1s", lease="2s", retry=Retry(0))
async def loop(job: bool, ctx: AsyncContext) -> str:
    note("begin", ctx)
    if job:
        time.sleep(FOREVER)
    await asyncio.sleep(0.01)
    return "fine"


poison = Pipeline("poison")
"""Kills the process it runs in, in the tasks whose payload says so."""


@poison.phase(lease="8s")
async def drink(job: bool, ctx: AsyncContext) -> str:
    note("begin", ctx)
    if job:
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.2)
    return "fine"


relay = Pipeline("relay")
"""Five phases of different kinds; each takes as many seconds as the payload says."""

RELAY = ("fetch", "parse", "pack", "embed", "publish")


@relay.phase(lease="10s", retry=Retry(0))
async def fetch(job: dict[str, float]) -> str:
    await asyncio.sleep(job["for"])
    return "fetched"


@relay.phase(lease="10s", retry=Retry(0))
def parse(job: dict[str, float]) -> str:
    time.sleep(job["for"])
    return "parsed"


relay.command("pack", ["sleep", "{for}"], lease="10s", retry=Retry(0), result="last_line")


@relay.batch("embed", size=4, within="50ms", lease="10s", retry=Retry(0))
def embed(items: list[Item[dict[str, float]]]) -> None:
    time.sleep(items[0].payload["for"])
    for item in items:
        item.done("embedded")


@relay.phase(lease="10s", retry=Retry(0))
async def publish(job: dict[str, float]) -> str:
    await asyncio.sleep(job["for"])
    return "published"


quick = Pipeline("quick")
"""Two trivial phases, one of them limited."""


@quick.phase
async def first(job: int) -> int:
    return job + 1


@quick.phase(concurrency=2)
def second(job: int, first: int) -> int:
    return first + 1


limited = Pipeline("limited")
"""At most four attempts at once and two per key; then one at a time."""


@limited.phase(lease="5s", concurrency=4, per_key=2)
def both(job: dict[str, float], ctx: Context) -> None:
    note("enter", ctx, phase="both")
    time.sleep(job["for"])
    note("leave", ctx, phase="both")


@limited.phase(lease="5s", concurrency=1)
async def one(job: dict[str, float], ctx: AsyncContext) -> None:
    note("enter", ctx, phase="one")
    await asyncio.sleep(job["for"] / 5)
    note("leave", ctx, phase="one")


frozen = Pipeline("frozen")
"""Holds the GIL in a C call that never returns, in the tasks whose payload says so."""


@frozen.phase(lease="2s", timeout="2s", retry=Retry(0))
def match(job: bool, ctx: Context) -> str:
    note("begin", ctx)
    if job:
        re.match("(a+)+$", "a" * 60 + "b")
    return "fine"


programs = Pipeline("programs")
"""A program that runs for as long as the payload says, then notes that it did."""

programs.command(
    "program",
    [sys.executable, "-S", Path(__file__).with_name("program.py"), "{kind}", "{seconds}", "{ctx.task_id}"],
    env=["FAULTS_NOTES", "FAULTS_MARK"],
    lease="2s",
    retry=Retry(0),
    timeout="10m",
    result="last_line",
)


leaves = Pipeline("leaves")
tree = Pipeline("tree")
"""A parent that pauses where its payload says, so that it can be killed there."""

LEAVES = 550


@leaves.phase(lease="2s")
async def grow(job: int, ctx: AsyncContext) -> int:
    if job == 200:
        note("growing", ctx)
    await asyncio.sleep(0.02)  # long enough that few tasks are claimed ahead
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
    if job == "joined" and not ctx.task.suspect:
        note("joined", ctx)
        time.sleep(FOREVER)
    return [planted, count, tally.completed]


hanging_crowd = Pipeline("hanging_crowd")
"""Blocks its thread for ever if the payload says so, in a call that no exception interrupts."""


@hanging_crowd.phase(lease="30s", timeout="2s")
def hang(job: dict[str, Any], ctx: Context) -> str:
    note("begin", ctx)
    if job["hangs"]:
        time.sleep(1e6)
    return "done"
