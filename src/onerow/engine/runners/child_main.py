"""The program that runs one handler in a new interpreter.

Its argument is the number of an inherited descriptor. If it is started before it is needed, it first reads a frame
`{"prepare": ["module:qualname", …], "sys_path": […]}` from it, imports these handlers and sends `{"t": "ready"}`. Then it
reads a frame `{"handler": "module:qualname", "sys_path": […], …}` and calls a runner, a function `(handler, frame, send)` that
calls the handler and sends frames back. Answers of the worker arrive in the queue `frame["answers"]`. An error outside
the handler is sent as `{"t": "error", "exception": …, "message": …, "traceback": …}`.
"""

import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

RUNNER = "onerow.engine.runners.child_call:run_in_child"

WORKER_GONE = 113
"""The exit code of a child whose worker closed the channel before the handler returned."""

NOT_PREPARED = 114
"""The exit code of a child that could not import the handlers it was to prepare for."""

STOP_SIGNAL: int = signal.SIGRTMIN + 3 if hasattr(signal, "SIGRTMIN") else getattr(signal, "SIGUSR2", 0)
"""Sent by the process host to stop the handler. Not SIGTERM, which service managers send to every process of a service:
the handler may go on while its worker drains."""


def command(fd: int) -> list[str]:
    """Return the argument list that runs this program on an inherited descriptor."""
    # By path and without the current folder, so that it does not depend on how onerow was imported.
    return [sys.executable, "-P", str(Path(__file__).resolve()), str(fd)]


def main(fd: int) -> int:
    """Run the handler that the first frame names; return the exit code, 0 if the runner returned."""
    from onerow.engine.processes.host.tree import die_with_parent
    from onerow.engine.runners.channel import Channel

    die_with_parent()
    # A function and not SIG_IGN, which programs that the handler starts would inherit.
    signal.signal(signal.SIGTERM, _ignore)
    os.set_inheritable(fd, False)  # programs that the handler starts must not keep the channel open
    _write_lines_at_once()
    channel = Channel(socket.socket(fileno=fd))
    frame = channel.receive()
    if frame is not None and "prepare" in frame:
        if not _prepare(frame):
            return NOT_PREPARED  # quietly: the process of the next attempt reports it
        with suppress(BrokenPipeError):
            channel.send({"t": "ready"})
        frame = channel.receive()
    if frame is None:
        return WORKER_GONE
    answers: SimpleQueue[dict[str, object]] = SimpleQueue()
    frame["answers"] = answers
    threading.Thread(target=_listen, args=(channel.receive, answers.put), name="onerow-listen", daemon=True).start()
    try:
        _run(frame, channel.send)
    except BaseException as error:
        _send_error(error, channel.send)
        return 1
    return 0


def _ignore(number: int, frame: FrameType | None) -> None:
    """Ignore SIGTERM: the worker, which got the same signal, decides when the handler stops."""


def _prepare(frame: dict[str, object]) -> bool:
    """Import the handlers of a frame; return whether all could be imported."""
    names = frame["prepare"]
    assert isinstance(names, list)
    try:
        for name in (*names, RUNNER):
            _import(frame, name)
    except BaseException:
        return False
    return True


def _import(frame: dict[str, object], name: str) -> Any:
    """Return a function of the app; while it is imported, it may neither add tasks nor run workers."""
    from onerow.engine.import_guard import enter_child, importing_app
    from onerow.engine.runners.function_names import resolve

    enter_child()
    if isinstance(path := frame.get("sys_path"), list):
        sys.path[:] = path
    sys.argv[1:] = []
    with importing_app():
        return resolve(name)


def _run(frame: dict[str, object], send: Callable[[dict[str, object]], None]) -> None:
    from onerow.engine.runners.function_names import resolve

    handler = _import(frame, str(frame["handler"]))
    runner = resolve(str(frame.get("runner", RUNNER)))
    runner(handler, frame, send)


def _send_error(error: BaseException, send: Callable[[dict[str, object]], None]) -> None:
    from onerow.core.errors import with_fix

    try:
        message, trace = with_fix(error), "".join(traceback.format_exception(error))
    except BaseException as raised:  # by the exception's own methods
        message, trace = f"its text could not be read, because {type(raised).__name__} was raised", ""
    frame: dict[str, object] = {
        "t": "error",
        "exception": type(error).__name__,
        "message": _storable(message),
        "traceback": _storable(trace),
    }
    # If the worker has ended, only the exit code reports the error.
    with suppress(OSError):
        send(frame)


def _storable(text: str) -> str:
    """Replace lone surrogates, which JSON cannot carry."""
    return text.encode("utf-8", "backslashreplace").decode()


def _listen(receive: Callable[[], dict[str, object] | None], answer: Callable[[dict[str, object]], None]) -> None:
    """Forward the worker's answers; exit when the worker has ended."""
    # The process host kills this process as well; this is for a child that runs without one.
    try:
        while (frame := receive()) is not None:
            answer(frame)
    finally:
        os._exit(WORKER_GONE)


def _write_lines_at_once() -> None:
    """Make output reach the task log line by line although it is written to a pipe."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


if __name__ == "__main__":
    root = str(Path(__file__).resolve().parents[3])
    if root not in sys.path:
        sys.path.append(root)
    sys.exit(main(int(sys.argv[1])))
