"""Handlers that run in their own process, without a queue."""

import os
import socket
import sys
from pathlib import Path

from onerow.engine.processes import Exit, ProcessHost, Program
from onerow.engine.runners.channel import Channel
from onerow.engine.runners.child_main import command

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
        self.channel = Channel(ours)
        self.output = open(reading, "rb")  # noqa: SIM115
        with theirs:
            argv, fds = command(theirs.fileno()), [theirs.fileno()]
            self.child = process_host.start(Program(argv=argv, stdout=writing, stderr=writing, pass_fds=fds))
        os.close(writing)
        self.channel.send(
            {"handler": name, "runner": "handlers:runner", "sys_path": [str(folder), *sys.path], "payload": payload}
        )

    def frames(self) -> list[dict[str, object]]:
        return list(iter(self.channel.receive, None))

    def exit(self) -> Exit:
        exit = self.child.wait(900)
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
