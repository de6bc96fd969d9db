"""The benchmarks. Workers run in separate processes, as in production."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from bench import backlog, commands, folder, monitor, simulator, sqs, suspects, web
from bench.baselines import open_baseline
from bench.setting import Figure, Setting, finish, start
from bench.work import PAYLOAD, fill, noop, one_phase
from onerow.core.addition import Addition
from onerow.core.status import WAITING
from onerow.ports import Claim, PhaseClaim


def drain(setting: Setting) -> Iterator[Figure]:
    """Rate at which one worker process drains a backlog, with statements and CPU per task."""
    baseline = open_baseline(setting.url, setting.folder)
    baseline.add_many(setting.tasks)
    floor = setting.tasks / baseline.drain(setting.tasks)
    pipeline = one_phase(setting, setting.tasks)
    server_cpu = getattr(baseline, "server_cpu", lambda: None)
    before = server_cpu()
    found = setting.worker(pipeline.name, count=setting.tasks)
    after = server_cpu()
    baseline.close()
    yield Figure("drain", setting.store, found["rate"], "tasks/s", floor)
    yield Figure("cpu", setting.store, found["cpu"] / setting.tasks * 1e6, "µs/task")
    if before is not None and after is not None:
        yield Figure(
            "cpu, with server", setting.store, (found["cpu"] + after - before) / setting.tasks * 1e6, "µs/task"
        )
    if found["statements"] is not None:
        yield Figure("statements", setting.store, found["statements"] / setting.tasks * 1000, "/1000 tasks")


def drain_sync(setting: Setting) -> Iterator[Figure]:
    """Drain rate of `def` handlers in threads, against `async def` handlers in the same run."""
    loop = setting.worker(one_phase(setting, setting.tasks).name, count=setting.tasks)
    threads = setting.worker(one_phase(setting, setting.tasks).name, count=setting.tasks, threads=True)
    yield Figure("drain in threads", setting.store, threads["rate"], "tasks/s", loop["rate"], "async")


def drain_deleted(setting: Setting) -> Iterator[Figure]:
    """Drain rate if completed tasks are deleted at their end, against the same tasks stored, in the same run."""
    keep = {"completed": "0s"}  # first, because it leaves no rows: both begin with an empty table
    deleted = setting.worker(one_phase(setting, setting.tasks).name, count=setting.tasks, keep=keep)
    stored = setting.worker(one_phase(setting, setting.tasks).name, count=setting.tasks)
    yield Figure("drain, deleted", setting.store, deleted["rate"], "tasks/s", stored["rate"], "stored")
    cpu, reference = (found["cpu"] / setting.tasks * 1e6 for found in (deleted, stored))
    yield Figure("cpu, deleted", setting.store, cpu, "µs/task", reference, "stored")


def drain_two(setting: Setting) -> Iterator[Figure]:
    """Drain rate of two worker processes, against one in the same run."""
    one = setting.worker(one_phase(setting, setting.tasks).name, count=setting.tasks)
    pipeline = one_phase(setting, setting.tasks)
    both = [start(setting.url, pipeline.name, count=setting.tasks, go=True) for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        process.stdout.readline()
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    found = [finish(process) for process in both]
    span = max(f["last"] for f in found) - min(f["first"] for f in found)
    yield Figure("drain by two", setting.store, setting.tasks / span, "tasks/s", one["rate"], "one")


def drain_five(setting: Setting) -> Iterator[Figure]:
    """Phase transitions per second of a five-phase pipeline, against a pipeline of one phase in the same run."""
    one = setting.worker(one_phase(setting, setting.tasks).name, count=setting.tasks)
    pipeline = setting.pipeline()
    for number in range(5):
        pipeline.phase(name=f"noop{number}")(noop)
    queue = setting.queue()
    queue.publish(pipeline)
    fill(queue, pipeline, setting.tasks // 5)
    queue.close()
    found = setting.worker(pipeline.name, count=setting.tasks // 5 * 5, phases=5)
    yield Figure("five phases", setting.store, found["rate"], "moves/s", one["rate"], "one phase")


def add(setting: Setting) -> Iterator[Figure]:
    """Rate of single adds, one transaction each."""
    count = max(1000, setting.tasks // 8)
    baseline = open_baseline(setting.url, setting.folder)
    floor = count / baseline.add(count)
    baseline.close()
    pipeline, queue = one_phase(setting, 10), setting.queue()
    began = time.perf_counter()
    for _ in range(count):
        queue.add(pipeline, PAYLOAD)
    yield Figure("add", setting.store, count / (time.perf_counter() - began), "tasks/s", floor)
    queue.close()


def add_many(setting: Setting) -> Iterator[Figure]:
    """Rate of bulk adds, 1,000 per transaction."""
    baseline = open_baseline(setting.url, setting.folder)
    floor = setting.tasks / baseline.add_many(setting.tasks)
    baseline.close()
    pipeline, queue = one_phase(setting, 10), setting.queue()
    began = time.perf_counter()
    fill(queue, pipeline, setting.tasks)
    yield Figure("add_many", setting.store, setting.tasks / (time.perf_counter() - began), "tasks/s", floor)
    queue.close()


def latency(setting: Setting) -> Iterator[Figure]:
    """Time from add to the first line of the handler in another process, on an idle system."""
    count = 200
    pipeline, queue = one_phase(setting, 0), setting.queue()
    process = start(setting.url, pipeline.name, count=count, latency=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1.5)
    for _ in range(count):
        queue.add(pipeline, {"ts": time.time()})
        time.sleep(0.05)
    found = sorted(finish(process)["latencies"])
    yield Figure("latency p50", setting.store, found[len(found) // 2] * 1000, "ms")
    yield Figure("latency p99", setting.store, found[int(len(found) * 0.99)] * 1000, "ms")
    queue.close()


def idle(setting: Setting) -> Iterator[Figure]:
    """CPU and memory of an idle worker."""
    pipeline = one_phase(setting, 0)
    process = start(setting.url, pipeline.name, count=1, idle_for=5.0)
    found = finish(process)
    yield Figure("idle cpu", setting.store, found["idle_cpu"] * 100, "% of a core")
    yield Figure("idle memory", setting.store, found["rss"] / 1e6, "MB")


def scale(setting: Setting) -> Iterator[Figure]:
    """Time of a claim of 100 with `scale` rows in front, against 1,000 rows."""
    for what, waiting, not_due in (("waiting", setting.scale, 0), ("not due", 1_000, setting.scale)):
        apart = replace(setting, folder=setting.folder / what)
        apart.folder.mkdir()
        # Alternating, because the speed of a shared machine changes over time.
        claims = _claims(apart, waiting=1_000), _claims(setting, waiting=waiting, not_due=not_due)
        times = [[next(each) for each in claims] for _ in range(9)]
        few, many = (sorted(column)[len(times) // 2] * 1000 for column in zip(*times, strict=True))
        yield Figure(f"claim, {setting.scale:,} {what}", setting.store, many, "ms", few, "1,000 waiting")


def _claims(setting: Setting, *, waiting: int, not_due: int = 0) -> Iterator[float]:
    """Yield the duration of each claim of 100."""
    pipeline, queue = setting.pipeline(), setting.queue()
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
    measure: Callable[[Setting], Iterator[Figure]]
    repeats: bool = True


FIGURES = {
    "drain": Measure(drain),
    "threads": Measure(drain_sync),
    "deleted": Measure(drain_deleted),
    "two": Measure(drain_two),
    "five": Measure(drain_five),
    "add": Measure(add),
    "add_many": Measure(add_many),
    "latency": Measure(latency),
    "idle": Measure(idle, repeats=False),
    "scale": Measure(scale, repeats=False),
    "backlog": Measure(backlog.backlog, repeats=False),
    "snapshot": Measure(backlog.snapshot, repeats=False),
    "logs": Measure(commands.log_lines),
    "log_delay": Measure(commands.log_delay, repeats=False),
    "folder": Measure(folder.folder),
    "command": Measure(commands.command_start, repeats=False),
    "isolated": Measure(commands.isolated_start, repeats=False),
    "suspects": Measure(suspects.suspects, repeats=False),
    "simulator": Measure(simulator.simulator, repeats=False),
    "sqs_cpu": Measure(sqs.sqs_cpu),
    "sqs": Measure(sqs.sqs, repeats=False),
    "web": Measure(web.web, repeats=False),
    "monitor": Measure(monitor.monitor, repeats=False),
}
