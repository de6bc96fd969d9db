"""The module for workers: onerow worker video_encoder.app"""

from video_encoder.messages import open_inbox
from video_encoder.opening import open_queue
from video_encoder.pipeline import videos
from video_encoder.results import Results
from video_encoder.settings import Settings

__all__ = ["queue", "videos"]

queue = open_queue()
queue.receive(open_inbox())
Results(queue, Settings.of_environment().mode)
