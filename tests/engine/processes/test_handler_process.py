"""A handler in a new interpreter: found by name, with input and output in JSON frames."""

import signal
import threading

import pytest

from onerow.engine.runners.child_main import WORKER_GONE
from tests.engine.processes.handlers import Handlers


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
    assert handler.exit().code == WORKER_GONE


def test_a_function_inside_a_class_can_be_named(run: Handlers) -> None:
    assert run("handlers:Group.inner", 1).frames() == [{"t": "result", "value": ["handlers", 1]}]
