"""The benchmarks. Workers run in separate processes, as in production."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from onerow.cli.bench import commands, lasting
from onerow.cli.bench.ground import Figure, Ground, finish, start
from onerow.cli.bench.work import PAYLOAD, fill, noop, one_phase
from onerow.core.addition import Addition
from onerow.core.status import WAITING
from onerow.ports import Claim, PhaseClaim
from onerow.wiring import thin_loop


def drain(ground: Ground) -> Iterator[Figure]:
    """Rate at which one worker process drains a backlog, with statements and CPU per task."""
    thin = thin_loop(ground.url, ground.folder)
    thin.add_many(ground.tasks)
    floor = ground.tasks / thin.drain(ground.tasks)
    pipeline = one_phase(ground, ground.tasks)
    server_cpu = getattr(thin, "server_cpu", lambda: None)
    before = server_cpu()
    found = ground.worker(pipeline.name, count=ground.tasks)
    after = server_cpu()
    thin.close()
    yield Figure("drain", ground.store, found["rate"], "tasks/s", floor)
    yield Figure("cpu", ground.store, found["cpu"] / ground.tasks * 1e6, "µs/task")
    if before is not None and after is not None:
        yield Figure("cpu, with server", ground.store, (found["cpu"] + after - before) / ground.tasks * 1e6, "µs/task")
    if found["statements"] is not None:
        yield Figure("statements", ground.store, found["statements"] / ground.tasks * 1000, "/1000 tasks")


def drain_sync(ground: Ground) -> Iterator[Figure]:
    """Drain rate of `def` handlers in threads, against `async def` handlers in the same run."""
    loop = ground.worker(one_phase(ground, ground.tasks).name, count=ground.tasks)
    threads = ground.worker(one_phase(ground, ground.tasks).name, count=ground.tasks, threads=True)
    yield Figure("drain in threads", ground.store, threads["rate"], "tasks/s", loop["rate"], "async")


def drain_two(ground: Ground) -> Iterator[Figure]:
    """Drain rate of two worker processes, against one in the same run."""
    one = ground.worker(one_phase(ground, ground.tasks).name, count=ground.tasks)
    pipeline = one_phase(ground, ground.tasks)
    both = [start(ground.url, pipeline.name, count=ground.tasks, go=True) for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        process.stdout.readline()
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    found = [finish(process) for process in both]
    span = max(f["last"] for f in found) - min(f["first"] for f in found)
    yield Figure("drain by two", ground.store, ground.tasks / span, "tasks/s", one["rate"], "one")


def drain_five(ground: Ground) -> Iterator[Figure]:
    """Phase transitions per second of a five-phase pipeline, against a pipeline of one phase in the same run."""
    one = ground.worker(one_phase(ground, ground.tasks).name, count=ground.tasks)
    pipeline = ground.pipeline()
    for number in range(5):
        pipeline.phase(name=f"noop{number}")(noop)
    queue = ground.queue()
    queue.publish(pipeline)
    fill(queue, pipeline, ground.tasks // 5)
    queue.close()
    found = ground.worker(pipeline.name, count=ground.tasks // 5 * 5, phases=5)
    yield Figure("five phases", ground.store, found["rate"], "moves/s", one["rate"], "one phase")


def add(ground: Ground) -> Iterator[Figure]:
    """Rate of single adds, one transaction each."""
    count = max(1000, ground.tasks // 8)
    thin = thin_loop(ground.url, ground.folder)
    floor = count / thin.add(count)
    thin.close()
    pipeline, queue = one_phase(ground, 10), ground.queue()
    began = time.perf_counter()
    for _ in range(count):
        queue.add(pipeline, PAYLOAD)
    yield Figure("add", ground.store, count / (time.perf_counter() - began), "tasks/s", floor)
    queue.close()


def add_many(ground: Ground) -> Iterator[Figure]:
    """Rate of bulk adds, 1,000 per transaction."""
    thin = thin_loop(ground.url, ground.folder)
    floor = ground.tasks / thin.add_many(ground.tasks)
    thin.close()
    pipeline, queue = one_phase(ground, 10), ground.queue()
    began = time.perf_counter()
    fill(queue, pipeline, ground.tasks)
    yield Figure("add_many", ground.store, ground.tasks / (time.perf_counter() - began), "tasks/s", floor)
    queue.close()


def latency(ground: Ground) -> Iterator[Figure]:
    """Time from add to the first line of the handler in another process, on an idle system."""
    count = 200
    pipeline, queue = one_phase(ground, 0), ground.queue()
    process = start(ground.url, pipeline.name, count=count, latency=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1.5)
    for _ in range(count):
        queue.add(pipeline, {"ts": time.time()})
        time.sleep(0.05)
    found = sorted(finish(process)["latencies"])
    yield Figure("latency p50", ground.store, found[len(found) // 2] * 1000, "ms")
    yield Figure("latency p99", ground.store, found[int(len(found) * 0.99)] * 1000, "ms")
    queue.close()


def idle(ground: Ground) -> Iterator[Figure]:
    """CPU and memory of an idle worker."""
    pipeline = one_phase(ground, 0)
    process = start(ground.url, pipeline.name, count=1, idle_for=5.0)
    found = finish(process)
    yield Figure("idle cpu", ground.store, found["idle_cpu"] * 100, "% of a core")
    yield Figure("idle memory", ground.store, found["rss"] / 1e6, "MB")


def scale(ground: Ground) -> Iterator[Figure]:
    """Time of a claim of 100 with `scale` rows in front, against 1,000 rows."""
    for what, waiting, not_due in (("waiting", ground.scale, 0), ("not due", 1_000, ground.scale)):
        apart = replace(ground, folder=ground.folder / what)
        apart.folder.mkdir()
        # Alternating, because the speed of a shared machine changes over time.
        claims = _claims(apart, waiting=1_000), _claims(ground, waiting=waiting, not_due=not_due)
        times = [[next(each) for each in claims] for _ in range(9)]
        few, many = (sorted(column)[len(times) // 2] * 1000 for column in zip(*times, strict=True))
        yield Figure(f"claim, {ground.scale:,} {what}", ground.store, many, "ms", few, "1,000 waiting")


def _claims(ground: Ground, *, waiting: int, not_due: int = 0) -> Iterator[float]:
    """Yield the duration of each claim of 100."""
    pipeline, queue = ground.pipeline(), ground.queue()
    pipeline.phase(name="noop")(noop)
    queue.publish(pipeline)
    later = queue.store.now() + timedelta(days=300)
    for first in range(0, not_due, 10_000):
        queue.add_many(pipeline, [Addition(PAYLOAD, run_at=later, priority=-50)] * min(10_000, not_due - first))
    for first in range(0, waiting, 10_000):
        queue.add_many(pipeline, [PAYLOAD] * min(10_000, waiting - first))
    phase_claim = PhaseClaim(pipeline=pipeline.name, phase="noop", limit=100, lease_for=timedelta(minutes=5))
    try:
        while True:
            began = time.perf_counter()
            found = queue.store.claim(Claim("bench", [phase_claim]))
            took = time.perf_counter() - began
            assert len(found) == 100
            assert found[0].status is not WAITING
            yield took
    finally:
        queue.close()


@dataclass(frozen=True)
class Measure:
    measure: Callable[[Ground], Iterator[Figure]]
    repeats: bool = True


FIGURES = {
    "drain": Measure(drain),
    "threads": Measure(drain_sync),
    "two": Measure(drain_two),
    "five": Measure(drain_five),
    "add": Measure(add),
    "add_many": Measure(add_many),
    "latency": Measure(latency),
    "idle": Measure(idle, repeats=False),
    "scale": Measure(scale, repeats=False),
    "backlog": Measure(lasting.backlog, repeats=False),
    "snapshot": Measure(lasting.snapshot, repeats=False),
    "logs": Measure(commands.log_lines),
    "log_delay": Measure(commands.log_delay, repeats=False),
    "command": Measure(commands.command_start, repeats=False),
}
