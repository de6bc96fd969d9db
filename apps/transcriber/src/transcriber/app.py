"""The module for workers: onerow worker transcriber.app"""

import logging
import os
from contextlib import suppress

from onerow import StoreError
from transcriber.inbox import QueueFolder
from transcriber.opening import open_queue, remove_left_work
from transcriber.settings import Settings

# Files of the worker and of all that it starts: 0640.
os.umask(0o027)
# httpx logs every URL at INFO, and a URL may contain a secret.
logging.getLogger("httpx").setLevel(logging.WARNING)

settings = Settings.of_environment()
settings.check_programs()
queue = open_queue()
queue.receive(QueueFolder(settings))
with suppress(StoreError):  # the worker reports it, and waits
    remove_left_work()
