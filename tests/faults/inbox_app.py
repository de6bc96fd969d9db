"""The app of workers that receive from a folder, and a program that drops files into it."""

import os
import sys
from typing import Any

from onerow import Pipeline, Queue
from onerow.inboxes.folder import FolderInbox, drop

jobs = Pipeline("jobs")


@jobs.phase(lease="2s")
async def run(job: dict[str, Any]) -> int:
    return int(job["n"])


queue = Queue(os.environ.get("FAULTS_STORE", "sqlite:///faults.db"))
if "FAULTS_FOLDER" in os.environ:
    queue.receive(FolderInbox(os.environ["FAULTS_FOLDER"], pipeline="jobs", interval="200ms", watch=False))

if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        # Half of the jobs have their own id; a repeated one is the same job.
        drop(os.environ["FAULTS_FOLDER"], {"n": number} | ({"job_id": f"job-{number}"} if number % 2 else {}))
