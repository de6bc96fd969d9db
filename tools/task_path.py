"""Count the modules that one task passes through on PostgreSQL, and how deep the calls of a claim are.

`python -m tools.task_path` starts a PostgreSQL of the tests, runs one task after the other in a worker, and prints the
modules of onerow on the path of a task. These rules say what is on the path:

- Threads: the one that adds, the one that runs the worker, and the one that runs the handler.
- A module counts if it is called for every task. What a timer calls (checks and reads once in a while) is called for
  some tasks only.
- Calls of a background role, an object with `tick`, are not on the path: a role keeps what it knows up to date by
  itself, and a task only reads it or adds to it.

The depth of a claim is the number of onerow's functions from `Worker.run` to the driver function that sends a statement,
in the call of the store that returned the task. Nothing here names a part of the worker or of the store, so that older
commits can be measured with the same rules. `--excluded` prints also what the rules leave out.
"""

import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from onerow import Pipeline, Queue, Status, Task, Worker
from tests.servers.postgres import open_postgres

_TASKS = 20
_DRIVER, _STORES = "psycopg", "onerow.stores."


class Recorder:
    """A profile function: the modules that each task calls, and the chain of calls that claimed it."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.number = 0  # of the task that runs; 0: nothing is recorded
        self.path: dict[str, set[int]] = defaultdict(set)  # module: numbers of the tasks that called it
        self.roles: set[str] = set()  # modules that were called by a background role
        self.claims: Counter[tuple[str, ...]] = Counter()  # the deepest chain of each claim
        self._deepest: dict[int, list[str]] = {}  # by thread: in its current call of the store

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        thread = threading.get_ident()
        if not self.number or thread not in self.threads:
            return
        module = _module(frame)
        if event == "call" and module.startswith("onerow."):
            if _is_called_by_role(frame):
                self.roles.add(module)
            else:
                self.path[module].add(self.number)
            if _enters_store(frame):
                self._deepest[thread] = []
        if _sends_sql(frame, event, argument):
            self._deepest[thread] = max(self._deepest.get(thread, []), _chain(frame), key=len)
        elif event == "return" and _enters_store(frame):
            chain = self._deepest.pop(thread, None)  # None: the call began before the recording
            if chain and any(_claimed(argument)):
                self.claims[tuple(chain)] += 1


def _module(frame: FrameType | None) -> str:
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _own(frame: FrameType | None) -> Iterator[FrameType]:
    return (each for each in _frames(frame) if _module(each).startswith("onerow."))


def _is_called_by_role(frame: FrameType) -> bool:
    return any(hasattr(type(each.f_locals.get("self")), "tick") for each in _own(frame))


def _enters_store(frame: FrameType) -> bool:
    """Whether this is a function of the store that the engine called."""
    above = _own(frame.f_back)
    return _module(frame).startswith(_STORES) and not any(_module(each).startswith(_STORES) for each in above)


def _sends_sql(frame: FrameType, event: str, argument: Any) -> bool:
    """Whether a function of the driver is called that sends a statement."""
    if event == "c_call":
        name, module = argument.__name__, type(getattr(argument, "__self__", None)).__module__
    else:
        name, module = frame.f_code.co_name, _module(frame)
    return event in ("call", "c_call") and module.startswith(_DRIVER) and name.startswith(("send_", "exec"))


def _chain(frame: FrameType) -> list[str]:
    """The functions of onerow above a frame, outermost first."""
    names = [f"{_module(each).removeprefix('onerow.')}:{each.f_code.co_qualname}" for each in _own(frame)]
    return names[::-1]


def _claimed(answer: Any) -> Iterator[Task]:
    """The tasks in an answer of the store that were just claimed."""
    if isinstance(answer, Task) and answer.status is Status.PROCESSING:
        yield answer
    elif isinstance(answer, tuple | list):
        for each in answer:
            yield from _claimed(each)


def record(queue: Queue) -> Recorder:
    """Run tasks one after the other; the first one opens connections and prepares statements, and is not recorded."""
    pipeline = Pipeline("path")
    recorder = Recorder()

    @pipeline.phase
    async def work(payload: Any) -> str:
        recorder.threads.add(threading.get_ident())
        return "done"

    queue.serve(pipeline)
    worker = Worker(queue, concurrency=1)
    threading.setprofile(recorder)
    running = threading.Thread(target=worker.run)
    running.start()
    assert worker.ready.wait(60)
    assert running.ident is not None
    recorder.threads.add(running.ident)
    for number in range(_TASKS + 1):
        added: list[Task] = []
        adding = threading.Thread(target=lambda added=added: added.append(_add(queue, pipeline, recorder)))
        recorder.number = number
        adding.start()
        adding.join()
        while not queue.get(added[0].task_id).ended:
            time.sleep(0.002)
        recorder.number = 0
    threading.setprofile(None)
    worker.stop()
    running.join()
    return recorder


def _add(queue: Queue, pipeline: Pipeline, recorder: Recorder) -> Task:
    recorder.threads.add(threading.get_ident())
    return queue.add(pipeline, {"n": 1})


def main() -> None:
    server = open_postgres()
    queue = Queue(server.fresh_database())
    recorder = record(queue)
    queue.close()
    server.close()
    path = {module for module, numbers in recorder.path.items() if len(numbers) == _TASKS}
    _print(f"modules on the path of a task: {len(path)}", sorted(path))
    if "--excluded" in sys.argv:  # depends on which timers fired
        _print("not called for every task:", sorted(recorder.path.keys() - path))
        _print("called by background roles only:", sorted(recorder.roles - recorder.path.keys()))
    claim = recorder.claims.most_common(1)[0][0]  # a claim that has to look twice goes deeper
    _print(f"calls from Worker.run to the claim's SQL: {len(claim)}", claim)


def _print(title: str, names: Sequence[str]) -> None:
    print(title)
    for name in names:
        print(f"  {name.removeprefix('onerow.')}")


if __name__ == "__main__":
    main()
