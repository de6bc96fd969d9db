"""The command `tagger sync`, killed with kill -9 before or after its jobs are added: KILL_AT=before|after."""

import os
import signal
from typing import Any

from ai_tagger import posts
from ai_tagger.cli import main

_add_jobs = posts.add_jobs


def _deadly(*args: Any, **options: Any) -> None:
    if os.environ["KILL_AT"] == "after":
        _add_jobs(*args, **options)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    posts.add_jobs = _deadly  # type: ignore[assignment]
    main()
