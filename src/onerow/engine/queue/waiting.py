"""`wait`: return a task when it has ended."""

import asyncio
import threading

from onerow.core.durations import Duration, parse_duration, spell_duration
from onerow.core.errors import BadInput, OnerowError, UnknownName, WaitTimeout
from onerow.core.retention import completed_unseen
from onerow.core.task import Task
from onerow.engine.queue.scope import Scope


class Waiting(Scope):
    """The part of a queue that waits for the end of tasks; the async partner holds no thread."""

    def wait(self, task: Task | str, *, timeout: Duration | None = None) -> Task:
        """Return the task when it has ended: completed, failed or cancelled; see its `status`, `results` and `error`.

        task: the task or its id. timeout: raise WaitTimeout after this time ('30s'); the task itself continues. None:
        wait without limit.
        """
        task_id, seconds = _checked(task, timeout)
        found = self._seen(task, task_id)
        if found.ended:
            return found
        ended = threading.Event()
        answers: list[Task | OnerowError | None] = []

        def tell(answer: Task | OnerowError | None) -> None:
            answers.append(answer)
            ended.set()

        self.end_watch.add(task_id, tell)
        try:
            ended.wait(seconds)
        finally:
            self.end_watch.remove(tell)
        return self._answer(answers[0], found) if answers else self._not_ended(found, timeout)

    async def wait_async(self, task: Task | str, *, timeout: Duration | None = None) -> Task:
        """Async `wait`."""
        task_id, seconds = _checked(task, timeout)
        found = await asyncio.to_thread(self._seen, task, task_id)
        if found.ended:
            return found
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Task | OnerowError | None] = loop.create_future()

        def settle(answer: Task | OnerowError | None) -> None:
            if not future.done():
                future.set_result(answer)

        def tell(answer: Task | OnerowError | None) -> None:
            loop.call_soon_threadsafe(settle, answer)

        self.end_watch.add(task_id, tell)
        try:
            answer = await asyncio.wait_for(future, seconds)
        except TimeoutError:
            return await asyncio.to_thread(self._not_ended, found, timeout)
        finally:
            self.end_watch.remove(tell)
        return await asyncio.to_thread(self._answer, answer, found)

    def _seen(self, task: Task | str, task_id: str) -> Task:
        """Return the task as it is now, or completed if it was deleted at its end."""
        try:
            return self.get(task_id)
        except UnknownName:
            if isinstance(task, str) or self._user not in (None, task.user_id):
                raise
            return self._answer(None, task)

    def _answer(self, answer: Task | OnerowError | None, seen: Task) -> Task:
        """Return the ended task, or raise the error. A task whose pipeline deletes completed tasks was completed."""
        if isinstance(answer, OnerowError):
            raise answer
        if answer is not None:
            return answer
        plan = self._plan_or_none(seen.pipeline)
        if plan is not None and not seen.ended:
            completed = completed_unseen(seen, self.store.now())
            if self.retention.proves_completion(completed, plan):
                return completed
        raise UnknownName(f"task {seen.task_id!r} was removed before it was seen to end", field="task_id")

    def _not_ended(self, seen: Task, timeout: Duration | None) -> Task:
        """Return the task if it has ended after all; else raise WaitTimeout."""
        found = self._seen(seen, seen.task_id)
        if found.ended:
            return found
        assert timeout is not None
        limit = spell_duration(parse_duration(timeout, "timeout"))
        raise WaitTimeout(found.task_id, "parked" if found.parked else found.status, found.phase, limit)


def _checked(task: Task | str, timeout: Duration | None) -> tuple[str, float | None]:
    if not isinstance(task, Task | str):
        raise BadInput(f"wait takes a task or its id, not {task!r}", field="task")
    seconds = None if timeout is None else parse_duration(timeout, "timeout").total_seconds()
    return task if isinstance(task, str) else task.task_id, seconds
