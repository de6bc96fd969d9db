"""Isolated handlers: each runs in its own process, which exchanges JSON frames with the worker."""

import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

import msgspec

from onerow.core.errors import with_fix
from onerow.core.failure import failure
from onerow.core.outcomes import Cancelled
from onerow.core.rules.attempts import (
    CancelledItself,
    Crashed,
    Done,
    Failed,
    Finished,
    Interrupted,
    Jumped,
    Outcome,
    Skipped,
    Stopped,
)
from onerow.engine.handler.call import outcome_of_error
from onerow.engine.handler.requests import Request
from onerow.engine.processes import BadFrame, CannotStart, Child, Exit, ProcessHost, signal_name
from onerow.engine.runners.attempt import Attempt
from onerow.engine.runners.attempt_process import (
    HOST_KILLED,
    AttemptProcess,
    ended_with_the_worker,
    how_it_ended,
    process_deadline,
    too_much_memory,
    unready,
)
from onerow.engine.runners.channel import Channel
from onerow.engine.runners.child_extensions import Extensions, describe
from onerow.engine.runners.function_names import importable_name
from onerow.engine.runners.prestarted import HandlerProcess, PrestartedProcesses
from onerow.engine.runners.threads import run_in_thread

# A program that fails by itself ends with an exit code or with a signal of the kernel. These signals come from people
# and service managers, which stop whole process groups with them: not a fault of the task.
_FROM_OUTSIDE = frozenset(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGINT", "SIGHUP")
    if hasattr(signal, name)  # not all on Windows
)

_STARTS_WITHIN = 60.0
"""Seconds that the interpreter and the user's imports may take before the handler's timeout begins to count."""


class Isolated:
    """Run an attempt in an interpreter of its own; block until its whole process tree has ended."""

    def __init__(self, process_host: ProcessHost, grace: float, prestarted: PrestartedProcesses) -> None:
        self._process_host = process_host
        self._grace = grace
        self._prestarted = prestarted

    def __call__(self, attempt: Attempt) -> Outcome:
        try:
            handler, extensions = importable_name(attempt.served.call.function), describe(attempt.served.call)
        except ValueError:
            # Only a suspect can have a handler without an importable name. It runs in a thread of this worker, since no
            # other process can import it. If it crashes workers, the limit on rescues ends it.
            return _run_here(attempt)
        attempt.started_at = monotonic() + _STARTS_WITHIN  # until the child reports that the handler has begun
        if attempt.served.call.handler.isolated and (ready := self._prestarted.take()) is not None:
            outcome = self._run(attempt, handler, extensions, ready)
            if outcome is not None:
                return outcome
            # The process ended before the handler began, for example because it was killed while it waited.
        try:
            process = HandlerProcess(self._process_host)
        except (CannotStart, OSError) as error:
            return unready(attempt, error) or Failed(failure(str(error), "resource", exception="CannotStart"))
        outcome = self._run(attempt, handler, extensions, process)
        assert outcome is not None
        return outcome

    def _run(self, attempt: Attempt, handler: str, extensions: Extensions, process: HandlerProcess) -> Outcome | None:
        """Run the attempt in this process; return None if it was pre-started and ended before the handler began."""

        def feed(level: str, text: str) -> None:
            if text:
                attempt.write(level, text)

        def on_begun() -> None:
            attempt.started_at = monotonic()  # the interpreter's start does not count as handler time
            if attempt.served.call.handler.isolated and not attempt.in_flight.stop_asked(0):
                self._prestarted.refill()  # now, while the handler runs

        memory_limit = attempt.served.call.handler.memory_limit
        process.child.limit(*process_deadline(attempt), memory_limit)
        running = AttemptProcess(attempt, self._process_host, self._grace, feed)
        conversation = _Conversation(attempt, process.channel, process.child, on_begun)
        running.adopt(process)
        running.add_reader(process.channel.fileno(), conversation.receive)
        exit = running.wait(before=lambda: conversation.send(_first_frame(handler, attempt, extensions)))
        silent = not conversation.has_begun and conversation.reported is None
        if process.prepared and silent and attempt.stop is None and not (exit and exit.stopped):
            return None
        return _outcome(attempt, conversation.reported, exit)


def _run_here(attempt: Attempt) -> Outcome:
    try:
        return run_in_thread(attempt)
    except BaseException as error:
        attempt.in_flight.examine(error)
        return outcome_of_error(error, attempt.stop, attempt.served.call.errors)  # the second such failure counts


class _Conversation:
    """Handles the frames of a child."""

    def __init__(self, attempt: Attempt, channel: Channel, child: Child, on_begun: Callable[[], object]) -> None:
        self._on_begun = on_begun
        self._attempt = attempt
        self._channel = channel
        self._child = child
        self.has_begun = False
        self.reported: Outcome | None = None

    def send(self, frame: dict[str, object]) -> None:
        """Send a frame, unless the child has died; its exit is reported."""
        with suppress(BrokenPipeError):
            self._channel.send(frame)

    def receive(self) -> bool:
        """Handle one frame; return False at the end."""
        try:
            frame = self._channel.receive()
        except BadFrame as error:
            self.reported = Failed(failure(f"the handler's process sent an invalid frame: {error}", "crash"))
            self._child.stop(0)
            return False
        match frame:
            case None:
                return False
            case {"t": "begun"}:
                self.has_begun = True
                self._on_begun()
            case {"t": "progress", "text": str(text)}:
                self._attempt.progress(text)
            case {"t": "log", "level": str(level), "text": str(text)}:
                self._attempt.log(level, text)
            case {"t": "ask", "id": int(number), "request": request}:
                self._answer(number, request)
            case {"t": "outcome", "outcome": outcome}:
                self.reported = msgspec.convert(outcome, Outcome)
            case {"t": "error", "exception": str(name), "message": str(message)}:
                self.reported = Failed(failure(f"{name}: {message}", "unknown", exception=name))
        return True

    def _answer(self, number: int, request: object) -> None:
        frame: dict[str, object] = {"t": "answer", "id": number}
        try:
            frame["text"] = self._attempt.ask(msgspec.convert(request, Request))
        except Cancelled as stopped:
            frame["stop"] = str(stopped)
        except Exception as error:
            frame["error"] = [type(error).__name__, with_fix(error)]
        with suppress(BadFrame):
            self.send(frame)


def _first_frame(handler: str, attempt: Attempt, extensions: Extensions) -> dict[str, object]:
    call = attempt.served.call
    return {
        "handler": handler,
        "sys_path": sys.path,
        "parameters": [[parameter.name, parameter.source, parameter.keyword] for parameter in call.handler.parameters],
        "aliases": call.former_names,
        "extensions": msgspec.to_builtins(extensions),
        "task": msgspec.to_builtins(attempt.task),
    }


def _outcome(attempt: Attempt, reported: Outcome | None, exit: Exit | None) -> Outcome:
    if isinstance(reported, Done | Jumped | Finished | CancelledItself | Skipped):
        return reported
    if attempt.stop is not None:
        return Stopped(attempt.stop)
    if exit is not None and exit.over_memory:
        return Failed(too_much_memory(attempt, attempt.served.call.handler.memory_limit))
    if reported is not None:
        return reported
    if exit is not None and (exit.stopped or ended_with_the_worker(attempt, exit)):
        return Stopped("drain")  # its lease was about to end, or the whole service was being stopped
    if exit is None or not exit.seen:
        return Interrupted(HOST_KILLED)
    if exit.signal is not None and exit.signal in _FROM_OUTSIDE:
        return Interrupted(f"its process was sent {signal_name(exit.signal)} from outside")
    how = how_it_ended(exit) + (" without a result" if exit.signal is None else "")
    return Crashed(failure(f"the process that ran {attempt.task.phase} {how}", "crash", exception="Crash"))
