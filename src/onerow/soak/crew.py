"""The worker processes of a soak: supervisors with their descendants, found through /proc by a variable of their environment."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

MARK = "ONEROW_SOAK_MARK"
_MOST_PER_SUPERVISOR = 4


class Seen(NamedTuple):
    """A running process."""

    pid: int
    parent: int
    command: str


class Team:
    """One supervisor; `extra` are variables of its environment, which its next start has too."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.extra: dict[str, str] = {}
        self.supervisor: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0


class Crew:
    """Starts supervisors, and starts them again when they have ended."""

    def __init__(self, workers: int, folder: Path, env: Mapping[str, str], *, concurrency: int) -> None:
        self._folder = folder
        self._env = dict(env)
        self._concurrency = concurrency
        self.mark = uuid4().hex
        count = workers if workers <= _MOST_PER_SUPERVISOR else -(-workers // _MOST_PER_SUPERVISOR)
        shares = [workers // count + (number < workers % count) for number in range(count)]
        self.teams = [Team(share) for share in shares]

    def keep_running(self) -> None:
        """Start each supervisor that does not run."""
        for team in self.teams:
            if team.supervisor is None or team.supervisor.poll() is not None:
                self._start(team)

    def _start(self, team: Team) -> None:
        argv = [
            sys.executable, "-m", "onerow", "worker", "onerow.soak.workload", "--processes", str(team.processes),
            "--concurrency", str(self._concurrency), "--grace", "5s", "--interval", "500ms",
        ]  # fmt: skip
        with (self._folder / "workers.log").open("ab") as output:
            team.supervisor = subprocess.Popen(
                argv,
                env={**os.environ, **self._env, **team.extra, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        team.started_at = time.monotonic()

    def tree(self, team: Team) -> list[Seen]:
        """Return the supervisor of a team and its descendants, parents first."""
        if team.supervisor is None:
            return []
        everything = self.processes()
        found = [each for each in everything if each.pid == team.supervisor.pid]
        for each in found:
            found += [other for other in everything if other.parent == each.pid]
        return found

    def workers(self, team: Team) -> list[int]:
        """Return the pids of the worker processes of a team, oldest first."""
        root = team.supervisor.pid if team.supervisor else 0
        return sorted(each.pid for each in self.tree(team) if each.parent == root and "worker_process" in each.command)

    def hosts(self, team: Team) -> list[int]:
        """Return the pids of the processes that start isolated attempts."""
        workers = set(self.workers(team))
        return sorted(each.pid for each in self.tree(team) if each.parent in workers and "host.host" in each.command)

    def processes(self) -> list[Seen]:
        """Return every running process of this soak."""
        found = []
        mark = f"{MARK}={self.mark}".encode()
        for path in Path("/proc").iterdir():
            if not path.name.isdecimal():
                continue
            with suppress(OSError):
                if mark not in (path / "environ").read_bytes():
                    continue
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                if fields[0] not in ("Z", "X"):
                    command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append(Seen(int(path.name), int(fields[1]), command.strip()))
        return found

    def stop(self, seconds: float) -> list[Seen]:
        """Stop all supervisors; return the processes that are left after that and kill them."""
        for team in self.teams:
            if team.supervisor is not None and team.supervisor.poll() is None:
                team.supervisor.terminate()
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
            self._reap()
        for each in left:
            send_signal(each.pid, signal.SIGKILL)
        self._reap()
        return left

    def kill(self) -> None:
        """Kill all processes of this soak, also those that dying ones have just started."""
        deadline = time.monotonic() + 30
        while (left := self.processes()) and time.monotonic() < deadline:
            for each in left:
                send_signal(each.pid, signal.SIGKILL)
            self._reap()
            time.sleep(0.05)
        for team in self.teams:
            if team.supervisor is not None:
                team.supervisor.wait(30)

    def _reap(self) -> None:
        for team in self.teams:
            if team.supervisor is not None:
                team.supervisor.poll()


def send_signal(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return whether the process was there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
