"""A value of the wrong type gets an error that names the parameter, not an error from inside."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from onerow import BadInput, Pipeline, Queue, TaskFailed, Worker

posts = Pipeline("posts")


@posts.phase
def tag(job: object) -> None: ...


class Image(msgspec.Struct):
    url: str


image = posts.wait_for("image", signal="image", payload=Image)
IN_A_LIST = r"\nput one payload into a list: \[payload\]"

WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "no store": (lambda queue: Queue(None), "the store must be a URL or a store"),  # type: ignore[arg-type]
    "a number as a store": (lambda queue: Queue(5), "the store must be a URL or a store"),  # type: ignore[arg-type]
    "a number as a user": (
        lambda queue: queue.add(posts, user_id=7),
        r"user_id must be text, not int\nconvert it with str\(7\)",
    ),
    "a number as a title": (lambda queue: queue.add(posts, title=7), "title must be text, not int"),
    "no pipeline": (lambda queue: queue.add(None), "pipeline must be a Pipeline or its name, not NoneType"),
    "a handler as a pipeline": (
        lambda queue: queue.add(tag, {}),
        "pipeline must be a Pipeline or its name, not 'tag'\nif 'tag' is a phase, give its pipeline",
    ),
    "one payload for many": (
        lambda queue: queue.add_many(posts, {"n": 1}),
        "payloads must be a list, not dict" + IN_A_LIST,
    ),
    "a text for many": (lambda queue: queue.add_many(posts, "one"), "payloads must be a list, not str" + IN_A_LIST),
    "bytes for many": (lambda queue: queue.add_many(posts, b"1"), "payloads must be a list, not bytes" + IN_A_LIST),
    "a number for many": (lambda queue: queue.add_many(posts, 5), "payloads must be a list, not int" + IN_A_LIST),
    "one payload for many, async": (
        lambda queue: asyncio.run(queue.add_many_async(posts, {"n": 1})),
        "payloads must be a list, not dict" + IN_A_LIST,
    ),
    "a signal's payload of another type": (
        lambda queue: queue.signal(queue.add(posts).task_id, image, "u"),
        "payload is not a valid Image: Expected `object`, got `str`",
    ),
    "no payload of a signal with a type": (
        lambda queue: queue.select().signal(image),
        "payload is not a valid Image: Expected `object`, got `null`",
    ),
    "a pause of a number": (lambda queue: queue.pause(5), "pipeline must be a Pipeline or its name, not int"),
    "a claim of a number": (lambda queue: queue.claim(5), "pipeline must be a Pipeline or its name, not int"),
    "serving a name": (lambda queue: queue.serve("posts"), "pipelines must be Pipeline objects, not str"),
    "a handler to serve": (lambda queue: queue.serve(tag), "pipelines must be Pipeline objects, not function"),
    "a task as an id": (lambda queue: queue.get(queue.add(posts)), "task_id must be text, not Task; pass task.task_id"),
    "a number to find": (lambda queue: queue.find_one(7), "task_id must be text, not int"),
    "no id": (lambda queue: queue.cancel(None), "task_id must be text, not NoneType"),
    "a number as an error": (lambda queue: queue.fail("x", 5), "error must be text, not int"),
    "a name as an event": (lambda queue: queue.on("TaskFailed", print), "takes an event class"),
    "no hook": (lambda queue: queue.on(TaskFailed, 5), "takes an event class"),
    "a number as a receiver": (lambda queue: queue.alert(5), "a webhook's URL or to a function, not 5"),
    "a number as a cron": (lambda queue: Pipeline("p").cron(5), "a cron expression is text, not 5"),  # type: ignore[call-overload]
    "an order that does not exist": (lambda queue: queue.find(order="best"), "order is one of newest, oldest"),
    "a text as a limit": (lambda queue: queue.find(limit="5"), "limit must be a whole number, not '5'"),
    "a worker without a queue": (lambda queue: Worker(5), "a worker needs a Queue, not int"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_argument_is_named(queue: Queue, mistake: str) -> None:
    call, message = WRONG[mistake]
    with pytest.raises(BadInput, match=message):
        call(queue)
