"""The module for workers: onerow worker video_studio.app"""

import logging

from video_studio.opening import open_queue
from video_studio.pipeline import videos

__all__ = ["queue", "videos"]

# httpx logs every URL at INFO, and the URL of an upload session is a secret: it allows uploads.
logging.getLogger("httpx").setLevel(logging.WARNING)

queue = open_queue()
