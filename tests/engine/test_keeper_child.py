"""A handler in a new interpreter: found by name, with input and output in JSON frames."""

import functools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onerow.engine.processes import BadFrame, Channel, Child, Exit, ProcessHost, importable_name, resolve
from onerow.engine.runners import child_main as program

HANDLERS = """
import os, sys, threading, time

def runner(handler, frame, send):
    send({"t": "result", "value": handler(frame["payload"], send)})

def echo(payload, send):
    return payload

def talk(payload, send):
    for number in range(payload):
        send({"t": "progress", "done": number})
        send({"t": "log", "level": "info", "line": f"파도 {number} 🌊"})
    return "done"

def flood(payload, send):
    for _ in range(payload):
        print("x" * 10_000)
        send({"t": "log", "level": "info", "line": "y" * 10_000})
    return "done"

def crowd(payload, send):
    def work(name):
        for number in range(100):
            send({"t": "log", "level": "info", "line": f"{name}{number}" * 1000})
    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

def wrong(payload, send):
    raise ValueError("바다는 넓다 \\udcff")

def leave(payload, send):
    os._exit(9)

def hang(payload, send):
    send({"t": "progress", "done": 0})
    time.sleep(600)

class Group:
    @staticmethod
    def inner(payload, send):
        return [__name__, payload]
"""


class Handler:
    """One handler in a child, and the worker's ends of its channel and output."""

    def __init__(self, process_host: ProcessHost, folder: Path, name: str, payload: object) -> None:
        ours, theirs = socket.socketpair()
        reading, writing = os.pipe()
        self.channel = Channel(ours.detach())
        self.output = open(reading, "rb")  # noqa: SIM115
        with theirs:
            self.child: Child = process_host.start(
                program.command(theirs.fileno()), stdin=None, stdout=writing, stderr=writing,
                pass_fds=[theirs.fileno()], on_exit=lambda _: None,
            )  # fmt: skip
        os.close(writing)
        self.channel.send(
            {"handler": name, "runner": "handlers:runner", "sys_path": [str(folder), *sys.path], "payload": payload}
        )

    def frames(self) -> list[dict[str, object]]:
        return list(iter(self.channel.receive, None))

    def exit(self) -> Exit:
        exit = self.child.wait(60)
        assert exit is not None
        return exit

    def close(self) -> None:
        self.channel.close()
        self.output.close()


class Handlers:
    def __init__(self, process_host: ProcessHost, folder: Path) -> None:
        self.process_host = process_host
        self.folder = folder
        self.started: list[Handler] = []

    def __call__(self, name: str, payload: object = None) -> Handler:
        self.started.append(handler := Handler(self.process_host, self.folder, name, payload))
        return handler


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Handlers]:
    (tmp_path / "handlers.py").write_text(HANDLERS, encoding="utf-8")
    with ProcessHost() as process_host:
        yield (handlers := Handlers(process_host, tmp_path))
    for handler in handlers.started:
        handler.close()


@pytest.mark.parametrize(
    "payload",
    [None, 0, '조수 🌊 \u0000 \\ "', {"a": [1, 2.5, True, None, {"깊이": -3}]}, "파" * 400_000, ["x" * 1_000_000]],
    ids=["null", "zero", "text", "nested", "a_megabyte_of_korean", "a_megabyte"],
)
def test_a_payload_comes_back_unchanged(run: Handlers, payload: object) -> None:
    handler = run("handlers:echo", payload)
    assert handler.frames() == [{"t": "result", "value": payload}]
    assert handler.exit().code == 0


def test_frames_arrive_in_the_order_in_which_they_were_sent(run: Handlers) -> None:
    *frames, result = run("handlers:talk", 50).frames()
    assert frames[::2] == [{"t": "progress", "done": number} for number in range(50)]
    assert frames[1::2] == [{"t": "log", "level": "info", "line": f"파도 {number} 🌊"} for number in range(50)]
    assert result == {"t": "result", "value": "done"}


def test_threads_of_a_handler_do_not_mix_their_frames(run: Handlers) -> None:
    lines = [str(frame["line"])[:2] for frame in run("handlers:crowd").frames() if frame["t"] == "log"]
    assert sorted(lines) == sorted(f"{name}{number}"[:2] for name in "abcd" for number in range(100))


def test_a_flood_of_output_and_frames_does_not_block(run: Handlers) -> None:
    handler = run("handlers:flood", 500)
    printed: list[bytes] = []
    thread = threading.Thread(target=lambda: printed.append(handler.output.read()))
    thread.start()
    frames = handler.frames()
    thread.join()
    assert len(frames) == 501
    assert len(printed[0]) == 500 * 10_001


def test_an_exception_of_the_runner_comes_back_as_an_error(run: Handlers) -> None:
    handler = run("handlers:wrong")
    [frame] = handler.frames()
    assert (frame["t"], frame["exception"], frame["message"]) == ("error", "ValueError", "바다는 넓다 \\udcff")
    assert "in wrong" in str(frame["traceback"])
    assert handler.exit().code == 1


def test_a_handler_that_cannot_be_found_comes_back_as_an_error(run: Handlers) -> None:
    [missing] = run("handlers:missing").frames()
    [nowhere] = run("no_such_module:run").frames()
    assert missing["message"] == "Cannot find 'handlers:missing': handlers has no 'missing'. Was it renamed or moved?"
    assert str(nowhere["message"]).startswith("Cannot import 'no_such_module' for 'no_such_module:run': Module")


def test_the_exit_code_of_a_child_that_exits_without_a_result_is_reported(run: Handlers) -> None:
    handler = run("handlers:leave")
    assert handler.frames() == []
    assert handler.exit().code == 9


def test_a_hanging_handler_can_be_stopped(run: Handlers) -> None:
    handler = run("handlers:hang")
    assert handler.channel.receive() == {"t": "progress", "done": 0}
    handler.child.stop(0)
    exit = handler.exit()
    assert (exit.signal in (signal.SIGTERM, signal.SIGKILL), exit.stopped) == (True, True)


def test_a_child_exits_when_the_worker_closes_the_channel(run: Handlers) -> None:
    handler = run("handlers:hang")
    assert handler.channel.receive() == {"t": "progress", "done": 0}
    handler.channel.close()
    assert handler.exit().code == program.WORKER_GONE


def test_a_function_inside_a_class_can_be_named(run: Handlers) -> None:
    assert run("handlers:Group.inner", 1).frames() == [{"t": "result", "value": ["handlers", 1]}]


# Names


def test_a_name_finds_its_function_again() -> None:
    assert importable_name(socket.create_connection) == "socket:create_connection"
    assert resolve(importable_name(Path.cwd)) == Path.cwd
    assert resolve(importable_name(importable_name)) is importable_name


@pytest.mark.parametrize(
    "function, reason",
    [
        (lambda: None, "A lambda has no name"),
        (functools.partial(print, 1), "is not a function"),
        (Path("/").exists, "method of one object"),
        (Handler, "is not a function"),
    ],
    ids=["lambda", "partial", "method", "class"],
)
def test_a_callable_without_an_importable_name_is_refused(function: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        importable_name(function)


def test_a_function_in_a_function_is_refused() -> None:
    def inner() -> None: ...

    with pytest.raises(ValueError, match="inside another function"):
        importable_name(inner)


@pytest.mark.parametrize("name", ["", "socket", ":x", "socket:", "socket:no.such", "socket:AF_INET6.name"])
def test_a_name_that_cannot_be_resolved_raises_an_import_error(name: str) -> None:
    with pytest.raises(ImportError, match=r"form|no 'no.such'|not a function"):
        resolve(name)


def test_the_import_error_names_the_exception_of_a_failing_module(tmp_path: Path) -> None:
    (script := tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(ImportError, match="ZeroDivisionError: division by zero"):
        resolve(f"{script}:run")


SCRIPT = """
import sys
from onerow.engine.processes import importable_name

def video(payload, send):
    return [__name__, payload]

if __name__ == "__main__":
    print(importable_name(video))
"""


def names_printed(*argv: str, cwd: Path, text: str | None = None) -> "subprocess.CompletedProcess[str]":
    env = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run([sys.executable, *argv], cwd=cwd, env=env, input=text, capture_output=True, text=True)


@pytest.mark.parametrize("file", ["app.py", "app-without-suffix"])
def test_a_function_of_the_main_script_is_found_by_path(run: Handlers, file: str) -> None:
    (run.folder / file).write_text(SCRIPT)
    name = names_printed(file, cwd=run.folder).stdout.strip()
    assert name == f"{run.folder.resolve() / file}:video"
    assert run(name, 1).frames() == [{"t": "result", "value": ["__onerow_main__", 1]}]


def test_a_function_of_a_module_run_with_m_is_found_by_module(run: Handlers) -> None:
    (run.folder / "studio").mkdir()
    (run.folder / "studio" / "__main__.py").write_text(SCRIPT)
    name = names_printed("-m", "studio", cwd=run.folder).stdout.strip()
    assert name == "studio.__main__:video"
    assert run(name, 1).frames() == [{"t": "result", "value": ["studio.__main__", 1]}]


def test_a_function_read_from_standard_input_is_refused(tmp_path: Path) -> None:
    assert "put it in a file" in names_printed("-", cwd=tmp_path, text=SCRIPT).stderr


# Frames


def test_a_channel_that_is_closed_ends_the_frames() -> None:
    reading, writing = os.pipe()
    sender, receiver = Channel(writing), Channel(reading)
    sender.send({"a": 1})
    sender.close()
    sender.close()
    assert [receiver.receive(), receiver.receive()] == [{"a": 1}, None]
    receiver.close()


@pytest.mark.parametrize(
    "content",
    [b"\0\0\0\x09{}", b"\0\0", b"Traceback (most recent call last)", b"\0\0\0\x02[]", b'\0\0\0\x03"\xff"'],
    ids=["cut_off", "cut_off_early", "not_a_frame", "not_an_object", "not_utf8"],
)
def test_bytes_that_are_not_a_frame_are_refused(content: bytes) -> None:
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    receiver = Channel(reading)
    with pytest.raises(BadFrame):
        receiver.receive()
    receiver.close()
