"""Isolated handlers: each runs in its own process, started by the process host, and exchanges JSON frames with the worker."""

import asyncio
import inspect
import os
import selectors
import signal
import socket
import sys
import threading
from codecs import getincrementaldecoder
from collections.abc import Callable
from datetime import timedelta
from queue import SimpleQueue
from time import monotonic
from types import FrameType
from typing import Any

import msgspec

from onerow.core.errors import BadInput, BadPayload, UnknownName
from onerow.core.failure import Failure, classify, failure
from onerow.core.outcomes import Cancelled, Snooze
from onerow.core.task import Task
from onerow.engine.handler import requests
from onerow.engine.handler.batch import alone
from onerow.engine.handler.call import Call
from onerow.engine.handler.context import Context
from onerow.engine.handler.outcome import (
    Crashed,
    Done,
    Failed,
    Finished,
    Interrupted,
    Jumped,
    Outcome,
    Snoozed,
    Stopped,
    Waiting,
    outcome_of_result,
    snoozed,
)
from onerow.engine.handler.requests import Request
from onerow.engine.processes import BadFrame, CannotStart, Child, Exit, ProcessHost, Program, signal_name
from onerow.engine.runners.attempt import Attempt
from onerow.engine.runners.channel import Channel
from onerow.engine.runners.child_main import STOP_SIGNAL, command
from onerow.engine.runners.function_names import importable_name
from onerow.engine.runners.process_stop import HOST_KILLED, TreeStopper, ended_with_the_worker, process_deadline
from onerow.engine.runners.threads import parked_in, run_in_thread
from onerow.pipelines.pipeline import Handler, Parameter
from onerow.pipelines.signature import declared_type, parameter_types

# ── in the worker ─────────────────────────────────────────────────────────────────────────────────────────────────


# A program that fails by itself ends with an exit code or with a signal of the kernel. These signals come from people
# and service managers, which stop whole process groups with them: not a fault of the task.
_FROM_OUTSIDE = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})

_STARTS_WITHIN = 60.0
"""Seconds that the interpreter and the user's imports may take before the handler's timeout begins to count."""


class Isolated:
    """Run an attempt in a new interpreter; block until its whole process tree has ended."""

    def __init__(self, process_host: ProcessHost, grace: float) -> None:
        self._process_host = process_host
        self._grace = grace

    def __call__(self, attempt: Attempt) -> Outcome:
        try:
            handler = importable_name(attempt.served.call.function)
        except ValueError:
            # Only a suspect can have a handler without an importable name. It runs in a thread of this worker, since no
            # other process can import it. If it crashes workers, the limit on rescues ends it.
            return run_in_thread(attempt)
        attempt.started_at = monotonic() + _STARTS_WITHIN  # until the child reports that the handler has begun
        ours, theirs = socket.socketpair()
        out, their_out = os.pipe()
        err, their_err = os.pipe()
        try:
            program = Program(
                argv=command(theirs.fileno()),
                stdout=their_out,
                stderr=their_err,
                pass_fds=[theirs.fileno()],
                stop_signal=STOP_SIGNAL,
            )
            child = self._process_host.start(program, deadline=process_deadline(attempt))
        except CannotStart as error:
            os.close(out)
            os.close(err)
            ours.close()
            return Failed(failure(str(error), "resource", exception="CannotStart"))
        finally:
            theirs.close()
            os.close(their_out)
            os.close(their_err)
        channel = Channel(ours)
        try:
            with child:
                attempt.handle = TreeStopper(attempt, child, self._grace)
                if attempt.stop is not None:
                    attempt.handle.interrupt()  # requested while the process was starting
                outcome = _Conversation(attempt, channel, child, out, err).hold(_first_frame(handler, attempt))
        finally:
            channel.close()
            os.close(out)
            os.close(err)
        return _outcome(attempt, outcome, child.wait())


class _Conversation:
    """Reads a child's frames and output until all of them have ended."""

    def __init__(self, attempt: Attempt, channel: Channel, child: Child, out: int, err: int) -> None:
        self._attempt = attempt
        self._channel = channel
        self._child = child
        self._reported: Outcome | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel.fileno(), selectors.EVENT_READ, self._receive)
        for descriptor, level in ((out, "out"), (err, "err")):
            self._selector.register(descriptor, selectors.EVENT_READ, self._reader(descriptor, level))

    def hold(self, first: dict[str, object]) -> Outcome | None:
        """Return the outcome that the child reported, or None."""
        try:
            self._channel.send(first)
        except BrokenPipeError:
            pass  # it died at once; its exit is reported
        with self._selector:
            while self._selector.get_map():
                ready = self._selector.select(1.0)
                for key, _ in ready:
                    if not key.data():
                        self._selector.unregister(key.fileobj)
                if not ready and self._child.wait(0) is not None:
                    break  # it has ended, although a process of another user still holds its output open
        return self._reported

    def _receive(self) -> bool:
        try:
            frame = self._channel.receive()
        except BadFrame as error:
            self._reported = Failed(failure(f"the process of the handler spoke nonsense: {error}", "crash"))
            self._child.stop(0)
            return False
        match frame:
            case None:
                return False
            case {"t": "begun"}:
                self._attempt.started_at = monotonic()  # the interpreter's start does not count as handler time
            case {"t": "progress", "text": str(text)}:
                self._attempt.progress(text)
            case {"t": "log", "level": str(level), "text": str(text)}:
                self._attempt.log(level, text)
            case {"t": "ask", "id": int(number), "request": request}:
                self._answer(number, request)
            case {"t": "result", "text": str(text)}:
                self._reported = Done(text)
            case {"t": "jump", "phase": str(phase), "text": str(text)}:
                self._reported = Jumped(phase, text)
            case {"t": "finish", "text": str(text)}:
                self._reported = Finished(text)
            case {"t": "parked", "name": str(name), "awaiting": str(awaiting), "seconds": seconds}:
                span = None if seconds is None else timedelta(seconds=float(str(seconds)))
                self._reported = Waiting(name, awaiting, span)
            case {"t": "snooze", "seconds": float() | int() as seconds}:
                self._reported = Snoozed(timedelta(seconds=seconds))
            case {"t": "terminated"}:
                self._reported = Interrupted("its process was sent SIGTERM from outside")
            case {"t": "failed", "why": dict(why)}:
                self._reported = Failed(msgspec.convert(why, Failure))
            case {"t": "error", "exception": str(name), "message": str(message)}:
                self._reported = Failed(failure(f"{name}: {message}", "unknown", exception=name))
        return True

    def _answer(self, number: int, request: object) -> None:
        frame: dict[str, object] = {"t": "answer", "id": number}
        try:
            frame["text"] = self._attempt.ask(requests.from_plain(request))
        except Cancelled as stopped:
            frame["stop"] = str(stopped)
        except Exception as error:
            frame["error"] = [type(error).__name__, str(error)]
        try:
            self._channel.send(frame)
        except (BrokenPipeError, BadFrame):
            pass  # it has died; its exit is reported

    def _reader(self, descriptor: int, level: str) -> Callable[[], bool]:
        decoder = getincrementaldecoder("utf-8")("replace")

        def read() -> bool:
            piece = os.read(descriptor, 65536)
            self._attempt.write(level, decoder.decode(piece, final=not piece))
            return bool(piece)

        return read


def _first_frame(handler: str, attempt: Attempt) -> dict[str, object]:
    call = attempt.served.call
    return {
        "handler": handler,
        "sys_path": sys.path,
        "parameters": [[parameter.name, parameter.source, parameter.keyword] for parameter in call.handler.parameters],
        "aliases": call.former_names,
        "task": msgspec.to_builtins(attempt.task),
    }


def _outcome(attempt: Attempt, reported: Outcome | None, exit: Exit | None) -> Outcome:
    if isinstance(reported, Done | Jumped | Finished):
        return reported
    if attempt.stop is not None:
        return Stopped(attempt.stop)
    if reported is not None:
        return reported
    if exit is not None and (exit.stopped or ended_with_the_worker(attempt, exit)):
        return Stopped("drain")  # its lease was about to end, or the whole service was being stopped
    if exit is None or not exit.seen:
        return Interrupted(HOST_KILLED)
    if exit.signal is not None and exit.signal in _FROM_OUTSIDE:
        return Interrupted(f"its process was sent {signal_name(exit.signal)} from outside")
    if exit.signal is not None:
        how = f"was killed by {signal_name(exit.signal)}"
    else:
        how = f"ended with exit code {exit.code} and no word"
    return Crashed(failure(f"the process that ran {attempt.task.phase} {how}", "crash", exception="Crash"))


# ── in the child ──────────────────────────────────────────────────────────────────────────────────────────────────

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

    def stop_reason(self) -> str | None:
        return self.stopped

    def progress(self, text: str) -> None:
        self._send({"t": "progress", "text": text})

    def log(self, level: str, text: str) -> None:
        self._send({"t": "log", "level": level, "text": text})

    def write(self, level: str, text: str) -> None:
        self.log(level, text)

    def ask(self, request: Request) -> str:
        with self._asking:
            self._asked += 1
            self._send({"t": "ask", "id": self._asked, "request": requests.to_plain(request)})
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
    try:
        types = parameter_types(function)
        parameters = tuple(
            Parameter(name, source, declared_type(source, types.get(name, Any)), keyword)
            for name, source, keyword in frame["parameters"]
        )
        is_async = inspect.iscoroutinefunction(function)
        call = Call(Handler(function, parameters, is_async, True), None)
        call.former_names = frame["aliases"]
        if call.takes_items:
            send({"t": "begun"})
            send(_frame_of(alone(call, task, link)))
            return
        positional, named = call.arguments(task, Context(task, link))
        run = _run_async if is_async else _run_sync
        send({"t": "begun"})
        result = run(function, positional, named, link)
        send(_frame_of(outcome_of_result(result)))
    except Snooze as snooze:
        send(_frame_of(snoozed(snooze)))
    except Cancelled:
        # The worker knows whether it requested the stop.
        send(
            {"t": "failed", "why": msgspec.to_builtins(_unrequested_cancel())}
            if link.stopped is None
            else {"t": "terminated"}
        )
    except BaseException as error:
        if (parked := parked_in(error)) is not None:
            seconds = None if parked.timeout is None else parked.timeout.total_seconds()
            send({"t": "parked", "name": parked.name, "awaiting": parked.awaiting, "seconds": seconds})
        elif isinstance(error, Exception | BaseExceptionGroup):
            send({"t": "failed", "why": msgspec.to_builtins(classify(error))})
        else:
            raise


def _frame_of(outcome: Outcome) -> dict[str, object]:
    match outcome:
        case Jumped(phase=phase, result=text):
            return {"t": "jump", "phase": phase, "text": text or "null"}
        case Finished(result=text):
            return {"t": "finish", "text": text or "null"}
        case Done(result=text):
            return {"t": "result", "text": text or "null"}
        case Snoozed(for_=span):
            return {"t": "snooze", "seconds": span.total_seconds()}
        case Failed(why=why):
            return {"t": "failed", "why": msgspec.to_builtins(why)}
    raise TypeError(f"no handler returns {outcome!r}")


def _run_sync(function: Callable[..., Any], positional: Any, named: Any, link: _Wire) -> Any:
    def on_stop(number: int, frame: FrameType | None) -> None:
        link.stopped = "stop"
        raise Cancelled("stop")

    signal.signal(STOP_SIGNAL, on_stop)
    return function(*positional, **named)


def _run_async(function: Callable[..., Any], positional: Any, named: Any, link: _Wire) -> Any:
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

    result = asyncio.run(run())
    if raised:
        raise raised[0]
    return result


def _unrequested_cancel() -> Failure:
    return failure("the handler was cancelled, but nobody asked for it", "unknown", exception="Cancelled")
