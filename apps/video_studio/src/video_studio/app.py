"""What a worker runs: onerow worker video_studio.app"""

import logging

from video_studio.opening import open_queue
from video_studio.pipeline import videos

__all__ = ["queue", "videos"]

# It writes every address at INFO, and that of an upload's session lets whoever reads it upload.
logging.getLogger("httpx").setLevel(logging.WARNING)

queue = open_queue()
