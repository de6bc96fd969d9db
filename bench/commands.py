"""Benchmarks of command phases and of the task log."""

import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait

from bench.baselines import open_baseline
from bench.setting import Figure, Setting, finish, start
from onerow.core.rules.attempts import Outcome
from onerow.core.task import Task
from onerow.engine.handler.call import Call
from onerow.engine.processes import ProcessHost
from onerow.engine.runners.attempt import Attempt, InFlight, ServedPhase
from onerow.engine.runners.command import Commands
from onerow.engine.runners.function_names import importable_name
from onerow.engine.runners.isolated import Isolated
from onerow.engine.runners.prestarted import PrestartedProcesses
from onerow.engine.runners.threads import ThreadRunner
from onerow.pipelines.pipeline import Pipeline
from onerow.wiring import Queue

LINE = "2026-11-15 02:29:57 INFO transcribe: segment 0042 done in 1.23 s, 58 % of the whole"
_TALKERS = 20


def log_lines(setting: Setting) -> Iterator[Figure]:
    """Rate of lines from a program to the store, against a plain batched insert of the same lines."""
    lines = max(1_000, setting.tasks // _TALKERS * 5)
    baseline = open_baseline(setting.url, setting.folder)
    if (log := getattr(baseline, "log", None)) is None:
        return
    floor = lines * _TALKERS / log(lines * _TALKERS, LINE)
    baseline.close()
    pipeline, queue = setting.pipeline(), setting.queue()
    talking(pipeline)
    queue.publish(pipeline)
    tasks = queue.add_many(pipeline, [{"lines": lines}] * _TALKERS)
    finish(start(setting.url, pipeline.name, count=0, talk=True))
    ended = queue.store.fetch([task.task_id for task in tasks])
    began, done = (min(_began(task) for task in ended), max(_done(task) for task in ended))
    yield Figure("log lines", setting.store, lines * _TALKERS / (done - began), "lines/s", floor)
    queue.close()


def log_delay(setting: Setting) -> Iterator[Figure]:
    """Start delay of tasks while another logs 100,000 lines repeatedly, against a quiet system."""
    pipeline, queue = setting.pipeline(), setting.queue()
    pipeline.phase(name="noop", timeout="30s")(lambda job: None)
    flood = Pipeline(f"{pipeline.name}-flood")
    talking(flood)
    queue.publish(pipeline, flood)
    count = 300
    process = start(setting.url, pipeline.name, count=2 * count, latency=True, talk=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1.5)
    _tasks_of(queue, pipeline, count)
    enough = threading.Event()
    thread = threading.Thread(target=_floods, args=(queue, flood, enough))
    thread.start()
    time.sleep(0.3)
    _tasks_of(queue, pipeline, count)
    enough.set()
    thread.join()
    found = finish(process)["latencies"]
    quiet, noisy = (sorted(part)[int(count * 0.99)] * 1000 for part in (found[:count], found[count:]))
    yield Figure("start p99 beside a flood", setting.store, noisy, "ms", quiet, "quiet")
    queue.close()


def _tasks_of(queue: Queue, pipeline: Pipeline, count: int) -> None:
    for _ in range(count):
        queue.add(pipeline, {"ts": time.time()})
        time.sleep(0.02)


def _floods(queue: Queue, flood: Pipeline, enough: threading.Event) -> None:
    while not enough.is_set():
        task = queue.add(flood, {"lines": 100_000})
        while not enough.is_set() and not queue.get(task.task_id).ended:
            time.sleep(0.05)


def talking(pipeline: Pipeline) -> None:
    """Add a command phase that prints many lines at almost no cost."""
    script = f"yes '{LINE}' | head -n \"$1\""
    pipeline.command("talk", ["sh", "-c", script, "sh", "{lines}"])


def command_start(setting: Setting) -> Iterator[Figure]:
    """Time of /bin/true from claim to outcome, without the store, against subprocess.run with captured output."""
    rounds, count = 6, 60
    for figure, threads in (("command", 1), ("command, 8 at once", 8)):
        with ProcessHost() as process_host, ThreadPoolExecutor(threads) as pool:
            onerow = _runner(process_host)
            times: dict[str, list[float]] = {"onerow": [], "subprocess": []}
            for _ in range(rounds):  # alternating, so that other load affects both
                times["subprocess"].append(_timed(pool, count, _subprocess))
                times["onerow"].append(_timed(pool, count, onerow))
        value, floor = (statistics.median(times[name]) * 1000 for name in ("onerow", "subprocess"))
        yield Figure(figure, "none", value, "ms", floor, "subprocess.run")


def isolated_start(setting: Setting) -> Iterator[Figure]:
    """Time from the start of an isolated attempt to its handler, with a process ready, against a new process."""
    rounds = 15
    with ProcessHost() as process_host:
        prestarted = PrestartedProcesses(process_host, most=1)
        pipeline = Pipeline("bench")
        pipeline.phase(name="noop", isolate="process")(isolated_noop)
        prestarted.handlers.append(importable_name(isolated_noop))
        attempt = _attempts(pipeline, run := Isolated(process_host, 5.0, prestarted))
        times: dict[str, list[float]] = {"ready": [], "new": []}
        for _ in range(rounds):
            times["new"].append(_start_delay(run, attempt()))  # finds none, and has one started
            while not prestarted.ready:
                time.sleep(0.01)
            times["ready"].append(_start_delay(run, attempt()))
            while not prestarted.ready:
                time.sleep(0.01)
            unused = prestarted.take()
            assert unused is not None
            unused.child.stop(0)
            unused.child.wait()
            unused.close()
        prestarted.close()
    value, floor = (statistics.median(times[name]) * 1000 for name in ("ready", "new"))
    yield Figure("isolated start", "none", value, "ms", floor, "new process")


def isolated_noop(job: object) -> None:
    """Do nothing."""


def _start_delay(run: Isolated, attempt: Attempt) -> float:
    began = time.monotonic()
    run(attempt)
    assert attempt.started_at is not None
    return attempt.started_at - began


def _attempts(pipeline: Pipeline, run: Callable[[Attempt], Outcome]) -> Callable[[], Attempt]:
    """Return a function that makes attempts of the first phase, without a worker."""
    queue = Queue("memory://")
    task = queue.add(pipeline)
    in_flight = InFlight(queue.store.now)
    unused = ThreadRunner(1, run, "bench")
    call = Call(pipeline.handlers[pipeline.plan.first.name], pipeline.plan)
    served = ServedPhase(pipeline.plan, pipeline.plan.first, call, unused, unused)
    return lambda: Attempt(task, served, in_flight, time.monotonic())


def _runner(process_host: ProcessHost) -> Callable[[], object]:
    pipeline = Pipeline("bench")
    pipeline.command("true", ["/bin/true"])
    attempt = _attempts(pipeline, run := Commands(process_host, 5.0))
    return lambda: run(attempt())


def _subprocess() -> object:
    return subprocess.run(["/bin/true"], capture_output=True, check=True)


def _timed(pool: ThreadPoolExecutor, count: int, call: Callable[[], object]) -> float:
    began = time.perf_counter()
    ended, _ = wait(
        [pool.submit(call) for _ in range(count)]
    )  # one wake-up, so that waiting does not affect the result
    span = (time.perf_counter() - began) / count
    for future in ended:
        future.result()
    return span


def _began(task: Task) -> float:
    assert task.completed_at is not None
    return task.completed_at.timestamp() - (task.elapsed_time or 0) / 1000


def _done(task: Task) -> float:
    assert task.completed_at is not None
    return task.completed_at.timestamp()
