"""The module for workers: onerow worker ai_tagger.app"""

import logging

from ai_tagger.opening import open_queue
from ai_tagger.pipeline import tagging

__all__ = ["queue", "tagging"]

logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every call at INFO

queue = open_queue()
