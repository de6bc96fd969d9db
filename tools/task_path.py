"""Count the modules that one task passes through on PostgreSQL, and how deep a claim's calls go.

`python -m tools.task_path` starts a PostgreSQL of the tests, adds one task, runs it in a worker, and records every
function of onerow that the adding thread, the worker's main thread and the handler's thread call for it. Roles that run
beside the task (heartbeat, sweeps, statistics) have threads of their own and are not counted.
"""

import threading
from types import FrameType
from typing import Any

from onerow import Pipeline, Queue, TaskCompleted, Worker
from tests.servers.postgres import open_postgres

_ROLE_THREADS = ("heart", "warden", "sweeps", "scribe", "alarm", "deadlines", "log", "hook")


class Recorder:
    """A profile function: modules called, and the deepest chain of onerow calls below a claim."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.deepest: list[str] = []
        self.active = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if not self.active or event != "call" or any(word in threading.current_thread().name for word in _ROLE_THREADS):
            return
        module = frame.f_globals.get("__name__", "")
        if module.startswith("onerow."):
            self.modules.add(module)
        elif module.startswith("psycopg"):
            chain = _chain(frame)
            if any("claim" in name.lower() for name in chain) and len(chain) > len(self.deepest):
                self.deepest = chain


def _chain(frame: FrameType | None) -> list[str]:
    """The onerow functions above a frame, outermost first, from the worker's round on."""
    names = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("onerow."):
            names.append(f"{module.removeprefix('onerow.')}:{frame.f_code.co_qualname}")
        frame = frame.f_back
    names.reverse()
    first = next((i for i, name in enumerate(names) if name.endswith("Producer.round")), 0)
    return names[first:]


def main() -> None:
    server = open_postgres()
    queue = Queue(server.fresh_database())
    pipeline = Pipeline("path")

    @pipeline.phase
    async def work(payload: Any) -> str:
        return "done"

    completed = threading.Event()
    queue.on(TaskCompleted, lambda event: completed.set())
    queue.serve(pipeline)
    worker = Worker(queue, concurrency=1)
    recorder = Recorder()
    threading.setprofile(recorder)
    thread = threading.Thread(target=worker.run, name="worker-main")
    thread.start()
    for active in (False, True):  # the first task opens connections and prepares statements
        worker.ready.wait(60)
        completed.clear()
        recorder.active = active
        adding = threading.Thread(target=lambda: queue.add(pipeline, {"n": 1}), name="adding")
        adding.start()
        adding.join()
        completed.wait(60)
        recorder.active = False
    threading.setprofile(None)
    worker.stop()
    thread.join()
    queue.close()
    server.close()
    print(f"modules on the path of a task: {len(recorder.modules)}")
    print(*(f"  {name.removeprefix('onerow.')}" for name in sorted(recorder.modules)), sep="\n")
    print(f"calls from a round to the claim's SQL: {len(recorder.deepest)}")
    print(*(f"  {name}" for name in recorder.deepest), sep="\n")


if __name__ == "__main__":
    main()
