"""Work that continues after the answer: acts on many tasks, and acts with a pace."""

import logging
import threading
from collections.abc import Callable

from onerow.core.errors import OnerowError, with_fix
from onerow.web.problems import Problem, Refused

MOST = 8
_log = logging.getLogger("onerow.web")


class BackgroundWork:
    """Runs some functions at once, each in a daemon thread, which may end with the process."""

    def __init__(self, most: int = MOST) -> None:
        self._free = threading.BoundedSemaphore(most)

    def start(self, name: str, function: Callable[[], object]) -> None:
        """Start a function; raise Refused if too many are running."""
        if not self._free.acquire(blocking=False):
            raise Refused(Problem(503, "too busy", "too many acts on many tasks are in progress", retry_after=30))

        def run() -> None:
            try:
                function()
            except OnerowError as error:
                _log.warning("%s stopped: %s", name, with_fix(error))
            except Exception:
                _log.exception("%s stopped", name)
            finally:
                self._free.release()

        threading.Thread(target=run, name="onerow-web-act", daemon=True).start()
