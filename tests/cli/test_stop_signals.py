"""SIGTERM and SIGINT of a command that ends in order."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, threading
from onerow.cli.stop_signals import on_stop_signal

stopping = threading.Event()
restore = on_stop_signal(stopping.set)
{}
"""


def output_of(code: str) -> str:
    """Run a program of its own, because signals reach the main thread; it would wait for ever for a lock that it holds."""
    argv = [sys.executable, "-c", PROGRAM.format(code)]
    return subprocess.run(argv, check=True, timeout=900, capture_output=True, text=True).stdout


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_signal_stops_a_command_that_it_interrupts_while_the_event_is_locked(number: str) -> None:
    code = f"""
with stopping._cond:  # as inside of wait() and set()
    signal.raise_signal(signal.{number})
    sum(range(1_000))
print(stopping.wait(900))
"""
    assert output_of(code) == "True\n"


def test_a_second_signal_is_heard_and_the_handlers_before_are_restored() -> None:
    code = """
for _ in range(2):
    signal.raise_signal(signal.SIGTERM)
    print(stopping.wait(900))
    stopping.clear()
restore()
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    assert output_of(code) == "True\nTrue\nTrue True\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_signal_to_a_forked_process_does_not_stop_the_command() -> None:
    code = """
child = os.fork()
if child == 0:
    signal.raise_signal(signal.SIGTERM)
    os._exit(0)
os.waitpid(child, 0)
print(stopping.wait(0.3))
"""
    assert output_of(code) == "False\n"
