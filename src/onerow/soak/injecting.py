"""Injects the faults of a schedule into a running soak, and records each with the processes that it hit."""

import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from onerow.core.errors import IllegalMove, OnerowError, StoreError, UnknownName
from onerow.core.status import CANCELLED
from onerow.engine.queue.queue import Queue
from onerow.soak import hooks
from onerow.soak.crew import Crew, Team, send_signal
from onerow.soak.feeding import MAY_FAIL, Feeder
from onerow.soak.proxy import Proxy
from onerow.soak.records import Recorder
from onerow.soak.schedule import Fault
from onerow.soak.workload import PHASES, RELEASE, soak

_TRIES = 20
_MOST_TRIED = 50  # tasks, until one accepts the operation
HIGHEST_LIMIT = 12


class Restartable(Protocol):
    """A database server that the soak may restart."""

    def restart(self) -> None:
        """Stop the server at once, as in a crash, and return when it answers again."""


class Injector:
    """Injects one fault after another; those that last end by themselves."""

    def __init__(
        self,
        crew: Crew,
        queue: Queue,
        feeder: Feeder,
        recorder: Recorder,
        *,
        lease: float,
        control: Path,
        server: Restartable | None = None,
        proxy: Proxy | None = None,
        database: Path | None = None,
    ) -> None:
        self._crew, self._queue, self._feeder, self._recorder = crew, queue, feeder, recorder
        self._lease, self._control = lease, control
        self._server, self._proxy, self._database = server, proxy, database
        self._lasting: dict[Callable[[], None], threading.Timer] = {}
        self.injected: dict[str, int] = {}
        self.stepped: set[int] = set()  # pids of workers whose clock is wrong
        self._limit_settled_at = 0.0

    def inject(self, fault: Fault) -> bool:
        """Inject a fault; return whether there was something that it could hit."""
        inject = getattr(self, "_" + fault.name.replace("-", "_"))
        if not inject(fault.choice):
            return False
        self.injected[fault.name] = self.injected.get(fault.name, 0) + 1
        self._recorder.write("injected", name=fault.name, number=fault.choice)
        return True

    def end_all(self) -> None:
        """End the faults that still last."""
        for end in list(self._lasting):
            self._end(end)

    def _later(self, seconds: float, end: Callable[[], None]) -> None:
        """Call `end` after some seconds, in a thread: the store may block this one for as long as the fault lasts."""
        timer = threading.Timer(seconds, lambda: self._end(end))
        timer.daemon = True
        self._lasting[end] = timer
        timer.start()

    def _end(self, end: Callable[[], None]) -> None:
        if (timer := self._lasting.pop(end, None)) is not None:
            timer.cancel()
            end()

    # ── processes ──

    def _team(self, choice: int) -> Team:
        return self._crew.teams[choice % len(self._crew.teams)]

    def _worker(self, choice: int) -> int | None:
        """Return the pid of a worker that has run bodies; one in ten may be just starting."""
        pids = [pid for team in self._crew.teams for pid in self._crew.workers(team)]
        if choice % 10:
            pids = [pid for pid in pids if self._has_worked(pid)]
        return pids[choice // 10 % len(pids)] if pids else None

    def _has_worked(self, pid: int) -> bool:
        return any(self._control.parent.glob(f"bodies-{pid}-*"))

    def _kill(self, choice: int) -> bool:
        pid = self._worker(choice)
        return pid is not None and self._kill_pids("kill", [pid])

    def _kill_pids(self, name: str, pids: list[int]) -> bool:
        at = time.monotonic()
        killed = [pid for pid in pids if send_signal(pid, signal.SIGKILL)]
        for pid in killed:
            self._recorder.write("fault", name=name, pid=pid, at=at)
        return bool(killed)

    def _kill_supervisor(self, choice: int) -> bool:
        supervisor = self._team(choice).supervisor
        return supervisor is not None and self._kill_pids("kill-supervisor", [supervisor.pid])

    def _kill_host(self, choice: int) -> bool:
        pids = [pid for team in self._crew.teams for pid in self._crew.hosts(team)]
        return bool(pids) and self._kill_pids("kill-host", [pids[choice % len(pids)]])

    def _kill_group(self, choice: int) -> bool:
        return self._kill_pids("kill-group", [each.pid for each in self._crew.tree(self._team(choice))])

    def _pause(self, choice: int) -> bool:
        """Stop a worker alone, which its supervisor notices, or a whole team, as when a virtual machine is suspended."""
        team = self._team(choice)
        workers = [pid for pid in self._crew.workers(team) if self._has_worked(pid)]
        pids = [each.pid for each in self._crew.tree(team)] if choice % 2 else workers[:1]
        if not workers:
            return False
        for _ in range(_TRIES):
            at = time.monotonic()
            stopped = [pid for pid in pids if send_signal(pid, signal.SIGSTOP)]
            if self._writable():
                break
            self._continue(stopped)  # one of them holds the write lock of the file: no fault for one worker only
        else:
            return False
        seconds = self._lease + 2.0
        for pid in stopped:
            self._recorder.write("fault", name="pause", pid=pid, at=at, until=time.monotonic() + seconds)
        self._later(seconds, partial(self._continue, stopped))
        return True

    def _continue(self, pids: list[int]) -> None:
        for pid in pids:
            send_signal(pid, signal.SIGCONT)

    def _writable(self) -> bool:
        """Whether the SQLite file can be written."""
        if self._database is None:
            return True
        with closing(sqlite3.connect(self._database, timeout=0.5, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
        return True

    def _order(self, choice: int, name: str, seconds: float) -> bool:
        pid = self._worker(choice)
        if pid is None:
            return False
        hooks.send(self._control, pid, hooks.Order(name, seconds))
        if name == "clock-step":
            self.stepped.add(pid)
        return True

    def _hold_gil(self, choice: int) -> bool:
        return self._order(choice, "hold-gil", self._lease + 2.0)

    def _block_loop(self, choice: int) -> bool:
        return self._order(choice, "block-loop", self._lease + 2.0)

    def _clock_step(self, choice: int) -> bool:
        return self._order(choice, "clock-step", 2 * self._lease * (1 if choice % 2 else -1))

    def _hide_proc(self, choice: int) -> bool:
        return self._restart_team(choice, {hooks.HIDE_PROC: "1"})

    def _wake_ups(self, choice: int) -> bool:
        return self._restart_team(choice, {hooks.WAKE_UPS: str(choice)})

    def _deploy(self, choice: int) -> bool:
        return self._restart_team(choice, {RELEASE: "2"})

    def _restart_team(self, choice: int, extra: dict[str, str]) -> bool:
        """Stop a supervisor as a deploy does; the crew starts it again."""
        team = self._team(choice)
        team.extra |= extra
        return team.supervisor is not None and send_signal(team.supervisor.pid, signal.SIGTERM)

    # ── the store ──

    def _restart_store(self, choice: int) -> bool:
        assert self._server is not None
        at = time.monotonic()
        self._server.restart()
        self._recorder.write("fault", name="restart-store", at=at, until=time.monotonic())
        return True

    def _cut(self, choice: int) -> bool:
        assert self._proxy is not None
        self._recorder.write("fault", name="cut", until=time.monotonic())
        self._proxy.cut()
        return True

    def _lost_answer(self, choice: int) -> bool:
        assert self._proxy is not None
        seconds = 0.05 + choice % 500 / 1000
        self._recorder.write("fault", name="cut", until=time.monotonic() + seconds)
        self._proxy.lose_answers(True)
        self._later(seconds, partial(self._proxy.lose_answers, False))
        return True

    def _delay(self, choice: int) -> bool:
        assert self._proxy is not None
        seconds = 0.05 + choice % 500 / 1000
        self._recorder.write("fault", name="delay", until=time.monotonic() + self._lease)
        self._proxy.delay_answers(seconds)
        self._later(self._lease, partial(self._proxy.delay_answers, 0.0))
        return True

    def _write_lock(self, choice: int) -> bool:
        assert self._database is not None
        seconds = 0.2 + choice % 1000 / 1000 * self._lease
        connection = sqlite3.connect(self._database, timeout=30, isolation_level=None, check_same_thread=False)
        connection.execute("BEGIN IMMEDIATE")
        self._recorder.write("fault", name="write-lock", until=time.monotonic() + seconds)
        self._later(seconds, connection.close)
        return True

    def _disk_full(self, choice: int) -> bool:
        """Fill the file system with a file, and delete it after a second."""
        assert self._database is not None
        ballast = self._database.with_name("ballast")
        at = time.monotonic()
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        self._recorder.write("fault", name="disk-full", at=at, until=time.monotonic() + 1.0)
        self._later(1.0, partial(ballast.unlink, missing_ok=True))
        return True

    # ── operations ──

    def _some(self, choice: int, *kinds: str) -> list[str]:
        """Return some ids of tasks of these kinds, from a random place on."""
        ids = [task for task, kind in list(self._feeder.kinds.items()) if kind in kinds]
        start = choice % len(ids) if ids else 0
        return (ids[start:] + ids[:start])[:_MOST_TRIED]

    def _cancel(self, choice: int) -> bool:
        ids = list(self._feeder.kinds)[-_MOST_TRIED * 2 :]  # the newest, of which most are open
        ids = [task for task in ids if self._feeder.kinds[task] not in MAY_FAIL][choice % _MOST_TRIED :]
        return any(self._operate(task, "cancel", partial(self._queue.cancel, task)) for task in ids)

    def _retry(self, choice: int) -> bool:
        ids = self._some(choice, "plain", "failing")
        return any(self._operate(task, "retry", partial(self._queue.retry, task)) for task in ids)

    def _replay(self, choice: int) -> bool:
        phase = PHASES[choice % 3]
        ids = self._some(choice, "plain", "delayed")
        return any(self._operate(task, "replay", partial(self._queue.replay, task, phase)) for task in ids)

    def _operate(self, task_id: str, name: str, operation: Callable[[], object]) -> bool:
        """Apply an operation; record it unless it was refused. An unknown answer counts as applied."""
        try:
            task = operation()
        except (IllegalMove, UnknownName):
            return False
        except StoreError:
            self._recorder.write("operation", task=task_id, name=name, outcome="unknown")
            return True
        accepted = name != "cancel" or getattr(task, "status", None) is CANCELLED
        self._recorder.write("operation", task=task_id, name=name, outcome="accepted" if accepted else "requested")
        return True

    def _limit(self, choice: int) -> bool:
        """Change a limit. The new one is recorded when every worker must have read it; until then the highest counts."""
        at = time.monotonic()
        if at < self._limit_settled_at:
            return False
        number = 2 + choice % (HIGHEST_LIMIT - 1)
        self._limit_settled_at = at + 3 * self._lease + 5
        try:
            self._queue.set_limit(soak, "store", concurrency=number)
        except OnerowError:
            number = HIGHEST_LIMIT  # unknown which limit applies from now on
        self._recorder.write("limit", phase="store", name="phase", number=HIGHEST_LIMIT, at=at)
        self._recorder.write("limit", phase="store", name="phase", number=number, at=self._limit_settled_at)
        return True
