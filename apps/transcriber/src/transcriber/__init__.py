"""From a recording to its transcript, subtitles, summary and translation, one row for each job."""

from transcriber.jobs import Job
from transcriber.opening import add_job, open_queue

__all__ = ["Job", "add_job", "open_queue"]
