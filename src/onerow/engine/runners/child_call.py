"""A handler in its own process: call it, and exchange frames with the worker."""

import asyncio
import inspect
import signal
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from types import FrameType
from typing import Any

import msgspec

from onerow.core.errors import BadInput, BadPayload, ResourceError, UnknownName
from onerow.core.outcomes import Cancelled, Parked
from onerow.core.rules.attempts import Interrupted, Outcome, Unready
from onerow.core.task import Task
from onerow.engine.handler.batch import alone
from onerow.engine.handler.call import Call, outcome_of_error, outcome_of_result
from onerow.engine.handler.context import current
from onerow.engine.handler.middleware import surround
from onerow.engine.handler.requests import Request
from onerow.engine.processes import BadFrame
from onerow.engine.runners.child_extensions import (
    ChildResources,
    Extensions,
    errors_of,
    middlewares_of,
    resources_of,
)
from onerow.engine.runners.child_main import STOP_SIGNAL
from onerow.pipelines.errors import ErrorTable
from onerow.pipelines.handlers import Handler, Parameter
from onerow.pipelines.signature import declared_type, parameter_types

Send = Callable[[dict[str, object]], None]


# Errors of the handler that the worker found are raised as they are; all others as RuntimeError.
_HANDLER_ERRORS = {kind.__name__: kind for kind in (BadInput, BadPayload, UnknownName)}


class _Wire:
    """The context's link to the worker, over the channel."""

    def __init__(self, send: Send, answers: "SimpleQueue[dict[str, object]]") -> None:
        self._send = send
        self._answers = answers
        self._asking = threading.Lock()
        self._asked = 0
        self.stopped: str | None = None
        self.tasks: Sequence[Task] = ()

    def begin(self) -> None:
        """Report that the handler is called now: its timeout counts from here."""
        self._send({"t": "begun"})

    def stop_reason(self) -> str | None:
        return self.stopped

    def progress(self, text: str) -> None:
        self._send({"t": "progress", "text": text})

    def log(self, level: str, text: str, *, echo: bool = True) -> None:
        self._send({"t": "log", "level": level, "text": text})

    def write(self, level: str, text: str) -> None:
        self.log(level, text)

    def ask(self, request: Request) -> str:
        with self._asking:
            self._asked += 1
            self._send({"t": "ask", "id": self._asked, "request": msgspec.to_builtins(request)})
            while (answer := self._answers.get()).get("id") != self._asked:
                pass  # the answer to an interrupted request
        match answer:
            case {"text": str(text)}:
                return text
            case {"stop": str(reason)}:
                self.stopped = self.stopped or reason
                raise Cancelled(reason)
            case {"error": [str(name), str(message)]}:
                raise _HANDLER_ERRORS[name](message) if name in _HANDLER_ERRORS else RuntimeError(f"{name}: {message}")
        raise BadFrame(f"the worker answered {answer!r}")


def run_in_child(function: Callable[..., Any], frame: dict[str, Any], send: Send) -> None:
    """Call the handler and send its outcome; a stop by the worker is raised in it as Cancelled."""
    task = msgspec.convert(frame["task"], Task)
    link = _Wire(send, frame["answers"])
    errors: tuple[ErrorTable, ...] = ()
    try:
        without = [name for name, source, _ in frame["parameters"] if source == "resource"]
        types = parameter_types(function, without=without)
        parameters = tuple(
            Parameter(name, source, declared_type(source, types.get(name, Any)), keyword)
            for name, source, keyword in frame["parameters"]
        )
        extensions = msgspec.convert(frame["extensions"], Extensions)
        errors = errors_of(extensions)
        handler = Handler(function, parameters, inspect.iscoroutinefunction(function), True, errors)
        call = Call(handler, None)
        call.former_names = frame["aliases"]
        surround(call, middlewares_of(extensions))
        with ChildResources(resources_of(extensions)) as resources:
            call.resources = resources.values
            send(_frame_of(_called(call, task, link, resources)))
    except ResourceError as error:
        send(_frame_of(Unready(str(error))))
    except BaseException as error:
        kind = type(error)
        if link.stopped is not None and issubclass(kind, Cancelled):
            # If the worker requested the stop, its reason counts instead.
            send(_frame_of(Interrupted("its process was sent SIGTERM from outside")))
        elif issubclass(kind, Exception | BaseExceptionGroup | Cancelled | Parked):
            send(_frame_of(outcome_of_error(error, None, errors)))
        else:
            raise


def _called(call: Call, task: Task, link: _Wire, resources: ChildResources) -> Outcome:
    link.tasks = (task,)
    current.set(link)
    if call.takes_items:
        link.begin()
        return alone(call, task, link, resources.run)
    positional, named = call.arguments(task, link)
    link.begin()
    if not call.handler.is_async:
        return outcome_of_result(_run_sync(call.function, positional, named, link))
    return outcome_of_result(_run_async(call.function, positional, named, link, resources.run))


def _frame_of(outcome: Outcome) -> dict[str, object]:
    return {"t": "outcome", "outcome": msgspec.to_builtins(outcome)}


def _run_sync(function: Callable[..., Any], positional: Any, named: Any, link: _Wire) -> Any:
    def on_stop(number: int, frame: FrameType | None) -> None:
        link.stopped = "stop"
        raise Cancelled("stop")

    signal.signal(STOP_SIGNAL, on_stop)
    return function(*positional, **named)


def _run_async(
    function: Callable[..., Any], positional: Any, named: Any, link: _Wire, on_loop: Callable[[Any], Any]
) -> Any:
    raised: list[BaseException] = []

    async def call() -> Any:
        try:
            return await function(*positional, **named)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            raised.append(error)  # not through asyncio, which calls methods of the exception that may raise

    async def run() -> Any:
        task = asyncio.ensure_future(call())

        def on_stop() -> None:
            link.stopped = "stop"
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(STOP_SIGNAL, on_stop)
        try:
            return await task
        except asyncio.CancelledError:
            raise Cancelled("stop") from None

    result = on_loop(run())
    if raised:
        raise raised[0]
    return result
