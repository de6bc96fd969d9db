"""What a worker runs: onerow worker video_studio.app"""

from video_studio.opening import open_queue
from video_studio.pipeline import videos

__all__ = ["queue", "videos"]

queue = open_queue()
