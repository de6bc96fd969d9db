"""Each number of docs/limits.md is that of the code: a constant, or the largest value that a function accepts."""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onerow import Labels, Pipeline, Queue, Retry
from onerow.cli import session
from onerow.cli.main import main
from onerow.cli.start import worker_pool
from onerow.core import failure, history, labels, schedule, signals, steps, values
from onerow.core.durations import parse_duration
from onerow.core.errors import OnerowError
from onerow.core.output_bound import OutputBound
from onerow.core.rates import parse_rate
from onerow.core.rules import attempts
from onerow.engine.control import stats
from onerow.engine.events import hooks
from onerow.engine.output import echo, lines
from onerow.engine.queue import bulk
from onerow.engine.worker import claim_planner
from onerow.inboxes import GitHub, WebhookInbox, folder_jobs
from onerow.web.api import tasks as api

PAGE = (Path(__file__).parents[2] / "docs/limits.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (.+?) \| ([^|]+) \| [^|]*\|$", re.MULTILINE)


def added(**options: Any) -> None:
    queue, posts = Queue("memory://"), Pipeline("posts")
    posts.phase(name="tag")(lambda job: None)
    queue.add(posts, {}, **options)


def priorities(most: int) -> None:
    added(priority=most)
    added(priority=-most)


def phase_with(**options: Any) -> None:
    Pipeline("posts").phase(name="tag", **options)(lambda job: None)


def batch_of(size: int) -> None:
    Pipeline("posts").batch(size=size, name="tag")(lambda items: None)


def claimed(limit: int) -> None:
    queue, posts = Queue("memory://"), Pipeline("posts")
    posts.phase(name="tag")(lambda job: None)
    queue.claim(posts, limit=limit)


def nested(depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    values.encode(value)


def option_of_worker(name: str) -> int:
    command = main.commands.get("worker") or main.get_command(None, "worker")  # type: ignore[arg-type]
    assert command is not None
    (option,) = [each for each in command.params if each.name == name]
    return option.type.max  # type: ignore[attr-defined, no-any-return]


CONSTANTS: dict[str, float] = {
    "payload, result of a phase, result of a step, payload of a signal, metadata: bytes each": values.MAX_VALUE,
    "one row: payload, results, steps, history and metadata together, characters of JSON": values.MAX_ROW,
    "bits of an integer in a JSON value, with its sign": (-values._INT_MIN).bit_length(),
    "steps, waits and spawns of one phase": steps.MAX_STEPS,
    "signals that nothing has waited for yet": signals.MAX_SIGNALS,
    "ids of taken signals, which keep a repeated signal from being taken twice": signals.MAX_TAKEN,
    "history, characters": history.MAX_HISTORY,
    "error message, characters": failure.MAX_MESSAGE,
    "traceback, characters": len(failure.trace_of(ValueError("x" * 20_000))),
    "output lines of a task": OutputBound().lines,
    "output of a task, bytes": OutputBound().size,
    "one line, characters": lines.LONGEST_LINE,
    "output lines of all tasks that `onerow worker` shows in a second, after a burst of 200": echo.PER_SECOND,
    "wait between two retries, hours, without jitter": Retry(30).delays(30)[-1] / timedelta(hours=1),
    "crashes of a task's own process until it fails": attempts.CRASH_LIMIT,
    'times that `catch_up="all"` adds at once': schedule.MOST_AT_ONCE,
    "tasks that `queue.purge` removes, by default": (Queue.purge.__kwdefaults__ or {})["limit"],
    "tasks that a command changes without asking": session.CONFIRM_ABOVE,
    "tasks of one request of the [HTTP API](how-to/http-api.md)": api.MOST_AT_ONCE,
    "items of a list in a [folder inbox](how-to/folder-inbox.md)": folder_jobs._MOST_ITEMS,
    "message of a [webhook](how-to/webhooks.md), bytes, by default": WebhookInbox(
        "a", GitHub("secret-of-a-test")
    ).max_size,
    "records of operations in bulk": bulk._RECORDS,
    "tasks at once in a process, `--concurrency`": option_of_worker("concurrency"),
    "processes of a supervisor, `--processes`": worker_pool.MOST_PROCESSES,
    "tasks of one claim": claim_planner.MOST,
    "events that wait for a hook": hooks.MOST_QUEUED,
    "statistics, minutes": stats.KEPT_FOR,
}
ACCEPTED: dict[str, Callable[[int], object]] = {
    "levels of nesting of a JSON value": nested,
    "`task_id`, characters": lambda n: added(task_id="x" * n),
    "`user_id`, characters": lambda n: added(user_id="x" * n),
    "`title` of `queue.add`, characters": lambda n: added(title="x" * n),
    "`unique`, characters": lambda n: added(unique="x" * n),
    "`limit_key`, characters": lambda n: added(limit_key="x" * n),
    "`priority`": priorities,
    "`max_retries`": lambda n: added(max_retries=n),
    "name of a pipeline, phase or signal, characters": lambda n: Pipeline("x" * n),
    "name of a step, characters": lambda n: steps.check_name("x" * n),
    "`concurrency`, `per_key`": lambda n: phase_with(concurrency=n, per_key=n),
    "tasks of one batch, `size`": batch_of,
    "`Retry(…)`: retries": Retry,
    "starts of a `rate` in its period": lambda n: parse_rate(f"{n}/min"),
    "any duration, days": lambda n: parse_duration(timedelta(days=n)),
    "tabs, and columns, of `Labels`": lambda n: labels.check_labels(Labels(columns=("title",) * n)),
    "words of `Labels`, characters": lambda n: labels.check_labels(Labels(statuses={"failed": "x" * n})),
    "leases of `queue.claim`": claimed,
}
WITHOUT = ("children of a task", "tasks of `queue.add_many`")


def limits() -> dict[str, str]:
    return {name: number for name, number in ROW.findall(PAGE) if name not in ("limit", "---")}


def number_of(name: str) -> int:
    return int(limits()[name].replace(",", ""))


def test_every_limit_of_the_page_is_compared_with_the_code() -> None:
    assert set(limits()) == {*CONSTANTS, *ACCEPTED, *WITHOUT}
    assert len(ROW.findall(PAGE)) == len(re.findall(r"^\|", PAGE, re.MULTILINE))
    assert {limits()[name] for name in WITHOUT} == {"no limit"}


@pytest.mark.parametrize("name", CONSTANTS)
def test_the_number_is_that_of_the_code(name: str) -> None:
    assert number_of(name) == CONSTANTS[name]


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_largest_value_is_accepted_and_the_next_one_refused(name: str) -> None:
    ACCEPTED[name](number_of(name))
    with pytest.raises(OnerowError):
        ACCEPTED[name](number_of(name) + 1)


def test_the_burst_of_shown_lines_and_the_page_of_children_stand_in_the_page() -> None:
    from onerow.engine.handler import checkpoints

    assert f"after a burst of {echo.BURST}" in PAGE
    assert f"they are added {checkpoints._PAGE} at a time" in PAGE
