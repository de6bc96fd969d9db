"""The async methods: the same operations without blocking the event loop."""

import asyncio
import inspect
import typing
from collections.abc import Callable
from typing import Any

import pytest

import onerow
from onerow import (
    AddManyOptions,
    AddOptions,
    BadInput,
    Crons,
    Leased,
    Leases,
    Pipeline,
    Puller,
    Queue,
    Selection,
    Status,
)
from onerow.core.addition import Addition
from onerow.engine.queue.adding import Queue as Adding
from onerow.engine.queue.scope import Scope
from tools import render_async

posts = Pipeline("posts")
SYNC_BY_DESIGN = {name.partition(".")[2] for name in render_async.IN_MEMORY | render_async.OF_THE_ENGINE}


@posts.phase
def tag(job: object) -> None: ...


def methods(owner: type) -> dict[str, Callable[..., Any]]:
    return {name: each for name, each in inspect.getmembers(owner, inspect.isfunction) if not name.startswith("_")}


@pytest.mark.parametrize("module", render_async.SOURCES)
def test_the_rendered_methods_are_current(module: str) -> None:
    stored = (render_async.FOLDER / f"{module}.py").read_text(encoding="utf-8")
    assert stored == render_async.render(module), "run: python -m tools.render_async"


@pytest.mark.parametrize("owner", [Queue, Selection, Leased, Leases, Puller, Crons])
def test_every_method_that_uses_the_store_has_an_async_partner(owner: type) -> None:
    known = methods(owner)
    names = {name for name in known if not name.endswith("_async")} - SYNC_BY_DESIGN
    missing = [name for name in names if f"{name}_async" not in known]
    assert not missing, f"{owner.__name__}: no async partner of {missing}; run: python -m tools.render_async"
    for name in names - set(methods(Adding)) | (names & set(methods(Scope))):
        sync, partner = inspect.signature(known[name]), inspect.signature(known[f"{name}_async"])
        assert partner == sync, name
        assert inspect.iscoroutinefunction(known[f"{name}_async"])
    for sync_name, async_name in (("__enter__", "__aenter__"), ("__exit__", "__aexit__")):
        assert hasattr(owner, sync_name) == hasattr(owner, async_name)


@pytest.mark.parametrize("name", ["add", "add_new", "add_many"])
def test_the_methods_that_add_have_the_same_overloads_as_their_partners(name: str) -> None:
    sync = typing.get_overloads(getattr(Adding, name))
    partner = typing.get_overloads(getattr(Adding, f"{name}_async"))
    assert [inspect.signature(each) for each in sync] == [inspect.signature(each) for each in partner]
    assert len(sync) == 2


def test_the_options_of_add_are_the_fields_of_an_addition() -> None:
    fields = typing.get_type_hints(Addition)
    del fields["payload"]
    assert typing.get_type_hints(AddOptions) == fields
    assert set(typing.get_type_hints(AddManyOptions)) == set(fields) - {"task_id"}


def test_every_async_method_does_the_same_as_its_sync_counterpart(queue: Queue) -> None:
    queue.serve(posts)

    async def main() -> None:
        task = await queue.add_async(posts, {"n": 1}, user_id="u1", priority=3)
        assert await queue.get_async(task.task_id) == task
        assert await queue.find_one_async(task.task_id) == task
        assert await queue.find_one_async("missing") is None
        assert (task.user_id, task.priority, task.payload) == ("u1", 3, {"n": 1})
        many = await queue.add_many_async(posts, range(3), limit_key="k")
        assert [each.payload for each in many] == [0, 1, 2]
        assert await queue.add_new_async(posts, task_id=task.task_id, user_id="u1") is None
        assert await queue.add_new_async(posts, task_id="new") is not None
        assert (await queue.signal_async(task.task_id, "go", 5, by="kim")).signals[0]["payload"] == 5
        cancelled = await queue.cancel_async(task.task_id, by="kim")
        assert (cancelled.status, cancelled.history[-1].by) == (Status.CANCELLED, "kim")
        async with await queue.claim_async(posts, ids=[many[0].task_id]) as leases:
            await leases[0].fail_async("broken", retry=False)
        assert (await queue.retry_async(many[0].task_id)).status is Status.WAITING
        assert sum(line.count for line in await queue.count_async()) == 5

    asyncio.run(main())


def test_a_selection_is_counted_read_and_changed_on_the_event_loop(queue: Queue) -> None:
    async def main() -> None:
        await queue.add_many_async(posts, range(3))
        chosen = queue.select()
        assert await chosen.count_async() == 3
        assert sorted([task.payload async for task in chosen]) == [0, 1, 2]
        assert (await chosen.cancel_async(limit=2)).done == 2

    asyncio.run(main())


def test_a_puller_works_on_the_event_loop(queue: Queue) -> None:
    async def main() -> None:
        await queue.add_many_async(posts, range(2))
        async with await queue.puller_async(posts) as puller:
            done, left = await puller.claim_async(2)
            assert (await done.complete_async()).status is Status.COMPLETED
        assert (await queue.get_async(left.task.task_id)).status is Status.WAITING

    asyncio.run(main())


def test_the_event_loop_is_not_blocked(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        released = asyncio.Event()
        loop = asyncio.get_running_loop()

        def get(self: Queue, task_id: str) -> str:
            asyncio.run_coroutine_threadsafe(released.wait(), loop).result(60)  # ends only if the loop runs on
            return task_id

        monkeypatch.setattr(Scope, "get", get)
        waiting = asyncio.create_task(queue.get_async("a"))
        await asyncio.sleep(0)
        released.set()
        assert str(await waiting) == "a"

    asyncio.run(main())


def test_errors_are_raised_to_the_caller(queue: Queue) -> None:
    with pytest.raises(BadInput, match="priority"):
        asyncio.run(queue.add_async(posts, priority=500))


@pytest.mark.parametrize("method", ["add", "add_async", "add_new", "add_new_async", "add_many", "add_many_async"])
def test_a_misspelt_keyword_gets_a_suggestion(queue: Queue, method: str) -> None:
    with pytest.raises(TypeError, match="has no keyword 'titel'; did you mean 'title'") as raised:
        asyncio.run(getattr(queue, method)(posts, [1], titel="a"))
    assert raised.value.__context__ is None, "a traceback shows one error"


@pytest.mark.parametrize("method", ["add", "add_async", "add_new", "add_new_async"])
def test_a_field_of_the_payload_as_a_keyword_is_told_where_it_belongs(queue: Queue, method: str) -> None:
    with pytest.raises(TypeError, match=f"{method}.. has no keyword 'url'; what the handlers take is in the payload"):
        asyncio.run(getattr(queue, method)(posts, url="a"))


def test_concurrent_adds_are_all_stored(queue: Queue) -> None:
    async def main() -> None:
        await asyncio.gather(*(queue.add_async(posts, {"n": n}) for n in range(50)))

    asyncio.run(main())
    assert [tally.count for tally in queue.count()] == [50]


def test_a_queue_for_one_user_is_scoped_in_async_methods_too(queue: Queue) -> None:
    task = asyncio.run(queue.for_user("ann").add_async(posts))
    assert task.user_id == "ann"
    with pytest.raises(onerow.UnknownName):
        asyncio.run(queue.for_user("bob").get_async(task.task_id))
