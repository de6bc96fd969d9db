"""What a handler remembers across its attempts, on the handler's side: steps, and waits that free the slot."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from onerow.core import steps, values
from onerow.core.errors import BadInput
from onerow.core.outcomes import Parked, WaitExpired
from onerow.core.steps import Record
from onerow.core.task import Task
from onerow.engine.asks import AwaitSignal, Remember, Request

_read = msgspec.json.Decoder(Record | None).decode


def waiting(call: Callable[[], Any], acall: Callable[[], Any]) -> Any:
    """On an event loop something to await, elsewhere the thing itself."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    return acall()


class Checkpoints:
    """The records of one phase as this attempt found them and adds to them."""

    def __init__(self, task: Task, ask: Callable[[Request], str]) -> None:
        self._phase = task.phase
        self._ask = ask
        self._records = steps.records(task)
        self._used: set[str] = set()
        self._counts: Counter[str] = Counter()

    # ── steps ──

    def step(self, name: str, function: Callable[..., Any], args: Any, named: Any) -> Any:
        if (record := self._recall(name)) is not None:
            return record.value
        return self._keep(name, values.encode(function(*args, **named), f"step {name!r}"))

    async def astep(self, name: str, function: Callable[..., Any], args: Any, named: Any) -> Any:
        if (record := self._recall(name)) is not None:
            return record.value
        if inspect.iscoroutinefunction(function):
            result = await function(*args, **named)
        else:
            result = await asyncio.to_thread(function, *args, **named)
            if inspect.isawaitable(result):
                result = await result
        # In a thread, so that a slow store does not hold up the other handlers of this loop.
        return await asyncio.to_thread(self._keep, name, values.encode(result, f"step {name!r}"))

    def _recall(self, name: str) -> Record | None:
        if name in self._used:
            raise BadInput(f"{self._phase} has two steps named {name!r}; each needs a name of its own", field="step")
        record = self._records.get(name)
        if record is not None:
            self._used.add(name)
        return record

    def _keep(self, name: str, result: str) -> Any:
        self._used.add(name)
        self._ask(Remember(name, result))
        # As every later attempt will see it: a tuple as a list, a model as a dict.
        return values.decode(result)

    # ── waits ──

    def wait(self, signal: str, timeout: timedelta | None) -> Any:
        name = self._next(f"wait:{signal}")
        record = self._records.get(name)
        if record is None or record.open:
            record = _read(self._ask(AwaitSignal(name, signal)))
        if record is None:
            raise Parked(name, f"signal:{signal}", timeout)
        return _came(record, f"nobody signalled {signal!r} in {self._phase} in time")

    async def await_(self, signal: str, timeout: timedelta | None) -> Any:
        return await asyncio.to_thread(self.wait, signal, timeout)

    def _next(self, kind: str) -> str:
        """The name of this wait: the second one for the same signal is another."""
        self._counts[kind] += 1
        count = self._counts[kind]
        return kind if count == 1 else f"{kind}#{count}"


def _came(record: Record, otherwise: str) -> Any:
    if record.expired:
        raise WaitExpired(otherwise)
    return record.value
