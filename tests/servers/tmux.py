"""A terminal in tmux: a command in a pane, driven by keys, its screen read as text."""

import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.servers import CACHE, Missing

UNPACKED = CACHE / "tmux"
_numbers = itertools.count()  # with the process id: no other run on this machine has the name


class Tmux:
    """One session of a tmux server of its own."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        size: tuple[int, int] = (110, 32),
        env: dict[str, str] | None = None,
    ) -> None:
        program, self._env = _find()
        self._tmux = [program, "-L", f"onerow-{os.getpid()}-{next(_numbers)}", "-f", "/dev/null"]
        variables = {"TERM": "tmux-256color", "LANG": "C.UTF-8"} | (env or {})
        # Not with tmux's -e: tmux sets TERM itself.
        # Without COLUMNS and LINES: programs believe them before they ask the terminal.
        unset = ("-u", "COLUMNS", "-u", "LINES")
        command = ["env", *unset, *(f"{name}={value}" for name, value in variables.items()), *command]
        self._run(
            "new-session", "-d", "-s", "m", "-x", str(size[0]), "-y", str(size[1]), "-c", str(folder), *command
        )  # fmt: skip
        self._run("set-option", "-g", "remain-on-exit", "on")

    def keys(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        for key in keys:
            self._run("send-keys", "-t", "m", key)

    @property
    def screen(self) -> str:
        return self._run("capture-pane", "-p", "-t", "m")

    @property
    def process(self) -> int:
        """The process id of the command."""
        return int(self._run("display-message", "-p", "-t", "m", "#{pane_pid}"))

    @property
    def ended(self) -> bool:
        return self._run("display-message", "-p", "-t", "m", "#{pane_dead}").strip() == "1"

    def until(self, condition: Callable[[str], bool], within: float = 90.0) -> str:
        """Wait until the screen meets a condition; return it."""
        deadline = time.monotonic() + within
        while not condition(screen := self.screen):
            assert time.monotonic() < deadline, f"the screen stays:\n{screen}"
            time.sleep(0.1)
        return screen

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], env=self._env, capture_output=True)

    def _run(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], env=self._env, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr
        return done.stdout


def _find() -> tuple[str, dict[str, str]]:
    """Return the program, and the environment in which it finds its libraries."""
    env = dict(os.environ) | {"LANG": "C.UTF-8"}
    if (installed := shutil.which("tmux")) is not None:
        return installed, env
    program = UNPACKED / "usr" / "bin" / "tmux"
    if not program.exists():
        raise Missing("tmux is not here. On Debian and Ubuntu `make servers` fetches it; elsewhere install it.")
    libraries = sorted({str(path.parent) for path in UNPACKED.rglob("*.so*")})
    return str(program), env | {"LD_LIBRARY_PATH": ":".join(libraries)}
