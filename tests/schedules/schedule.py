"""A schedule: tasks, faults, operations and the seed of their interleaving; how one is made from a seed, and its text."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec


class TaskPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """One task. Times in seconds from the start; `takes`: how long its handlers run."""

    number: int
    takes: float = 0.5
    failures: int = 0  # attempts of the first phase that raise
    poison: bool = False  # kills the process that runs it
    signal_at: float = 0.0  # when the signal is sent that it waits for; 0: it waits for none
    children: int = 0
    delay: float = 0.0

    @property
    def task_id(self) -> str:
        return f"task-{self.number}"

    @property
    def payload(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in ("number", "takes", "failures", "poison", "signal_at", "children")
        }


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault.

    At the step `at` of worker `worker`: kill, freeze (for `lasts` seconds), drain, or a fault of its next store call:
    refuse, lose (the answer), delay (the answer, past the lease). kill-body: kills the worker of the body with the number
    `at`. At the time `at`: outage (of the store, for `lasts` seconds), clock (the store's clock steps `lasts` forward).
    """

    kind: str
    at: float
    worker: int = 0
    lasts: float = 0.0


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an operator does at a time: cancel, retry or replay a task."""

    name: str
    at: float
    task: int


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    seed: int
    tasks: tuple[TaskPlan, ...]
    faults: tuple[Fault, ...] = ()
    operations: tuple[Operation, ...] = ()
    workers: int = 2
    same_host: bool = False  # whether workers can prove each other's death
    calm: bool = False  # shrunk: no delays by chance

    @property
    def tasks_by_number(self) -> dict[int, TaskPlan]:
        return {task.number: task for task in self.tasks}

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {self.workers} workers{', calm' if self.calm else ''}"]
        lines += [f"  {each}" for each in (*self.tasks, *self.faults, *self.operations)]
        return "\n".join(lines)


_AT_STEPS = ("kill", "kill", "kill", "freeze", "freeze", "refuse", "lose", "lose", "delay", "drain")


def schedule_of(seed: int) -> Schedule:
    """Return the schedule of a seed: up to three tasks, up to eight faults."""
    dice = random.Random(seed)
    workers = dice.choice((1, 2, 2, 2, 3))
    tasks = tuple(
        TaskPlan(
            number,
            takes=dice.choice((0.05, 0.3, 1.0, 4.0)),
            failures=dice.choice((0, 0, 0, 1, 2)),
            poison=dice.random() < 0.07,
            signal_at=dice.choice((0.0, 0.0, 1.0, 3.0, 5.0)),
            children=dice.choice((0, 0, 0, 0, 2)),
            delay=dice.choice((0.0, 0.0, 1.0)),
        )
        for number in range(dice.choice((1, 2, 2, 3)))
    )
    faults: list[Fault] = []
    if dice.random() < 0.25:  # the same work is hit again and again
        first = dice.randrange(3)
        faults += [Fault("kill-body", number) for number in range(first, first + dice.choice((2, 3, 4)))]
    for _ in range(dice.randint(0, 4)):
        kind = dice.choice((*_AT_STEPS, "outage", "outage", "clock"))
        if kind == "outage":
            faults.append(Fault(kind, round(dice.uniform(0, 6), 1), lasts=dice.choice((0.5, 2.0, 5.0))))
        elif kind == "clock":
            faults.append(Fault(kind, round(dice.uniform(0, 6), 1), lasts=dice.choice((2.0, 60.0))))
        else:
            lasts = dice.choice((1.0, 4.0, 8.0)) if kind == "freeze" else 0.0
            faults.append(Fault(kind, dice.randrange(300), dice.randrange(workers), lasts))
    operations = tuple(
        Operation(dice.choice(("cancel", "retry", "replay")), round(dice.uniform(0, 8), 1), dice.randrange(len(tasks)))
        for _ in range(dice.choice((0, 0, 1, 2)))
    )
    return Schedule(seed, tasks, tuple(faults), operations, workers, dice.random() < 0.4)


def shrunk(schedule: Schedule, still_fails: Callable[[Schedule], bool], *, most: int = 150) -> Schedule:
    """Return a smaller schedule that still fails: fewer faults, operations and tasks, no delays by chance."""
    tries = 0
    changed = True
    while changed and tries < most:
        changed = False
        for smaller in _smaller(schedule):
            tries += 1
            if still_fails(smaller):
                schedule, changed = smaller, True
                break
            if tries >= most:
                break
    return schedule


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    change = msgspec.structs.replace
    if len(schedule.faults) > 1:
        yield change(schedule, faults=())
    for field in ("faults", "operations", "tasks"):
        every = getattr(schedule, field)
        for index in range(len(every) - 1, -1, -1):
            left = every[:index] + every[index + 1 :]
            if field == "tasks" and (not left or any(each.task == every[index].number for each in schedule.operations)):
                continue
            yield change(schedule, **{field: left})
    if not schedule.calm:
        yield change(schedule, calm=True)
    for index, task in enumerate(schedule.tasks):
        for plainer in (
            change(task, children=0), change(task, failures=0), change(task, signal_at=0.0), change(task, delay=0.0),
        ):  # fmt: skip
            if plainer != task:
                yield change(schedule, tasks=(*schedule.tasks[:index], plainer, *schedule.tasks[index + 1 :]))
