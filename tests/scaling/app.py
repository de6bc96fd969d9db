"""An app whose tasks run until a file exists."""

import os
import time
from pathlib import Path
from typing import Any

from onerow import Pipeline, Queue

queue = Queue(os.environ["SCALING_TEST_STORE"])
clips = Pipeline("clips")


@clips.phase
def video(job: dict[str, Any]) -> None:
    while not Path(job["until"]).exists():
        time.sleep(0.02)
