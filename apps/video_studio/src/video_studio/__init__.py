"""From a topic to a published video: schedule → script → image → video → youtube, one row from its first phase to its last."""

from video_studio.library import add_video
from video_studio.opening import open_queue
from video_studio.pipeline import next_phase, videos
from video_studio.status import update_queue_status
from video_studio.tabs import TABS, Schedule, queue_counts, schedules_by_tab

__all__ = [
    "TABS",
    "Schedule",
    "add_video",
    "next_phase",
    "open_queue",
    "queue_counts",
    "schedules_by_tab",
    "update_queue_status",
    "videos",
]
