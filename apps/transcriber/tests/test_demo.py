"""`make transcriber` shows what it says: the worker is killed, and what was recognised before is not repeated."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_demo_kills_its_worker_and_repeats_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "apps.transcriber.demo"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"chunk-\d: done before", done.stdout), done.stdout
    assert done.stdout.count("  completed  ") == 4  # the talk, the playlist and its two recordings
