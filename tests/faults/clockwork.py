"""An app with one schedule that fires each second; separate from app.py, whose tests count the tasks they added."""

import os
from typing import Any

from onerow import Pipeline, Queue

queue = Queue(os.environ.get("FAULTS_STORE", "sqlite:///faults.db"))

ticking = Pipeline("ticking")
ticking.cron("* * * * * *", name="ticks", catch_up="all")


@ticking.phase(lease="2s")
async def tick(job: Any) -> None: ...
