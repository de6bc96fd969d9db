"""The module for workers: onerow worker transcriber.app"""

import logging
import os

from transcriber.inbox import QueueFolder
from transcriber.opening import open_queue
from transcriber.settings import Settings

# Files of the worker and of all that it starts: 0640.
os.umask(0o027)
# httpx logs every URL at INFO, and a URL may contain a secret.
logging.getLogger("httpx").setLevel(logging.WARNING)

queue = open_queue()
queue.receive(QueueFolder(Settings.of_environment()))
