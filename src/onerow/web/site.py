"""What all endpoints of one dashboard share."""

from onerow.core.scaling import Decision, ScaleSettings, ScaleState
from onerow.engine.queue.queue import Queue
from onerow.engine.views import Views
from onerow.engine.views.counts import BackgroundCounts
from onerow.scaling.scaler import Scaler
from onerow.scaling.server import ScaleAnswers
from onerow.telemetry.prometheus import StoreMetrics
from onerow.web.background import BackgroundWork
from onerow.web.cached_metrics import CachedMetrics
from onerow.web.pool import Pool
from onerow.web.pull_watch import PullWatch
from onerow.web.security.authentication import Authenticator
from onerow.web.security.log_in_rate import LogInRate
from onerow.web.security.requests import Hosts
from onerow.web.security.sessions import Sessions


class Site:
    """The queue, the credentials and the threads of one dashboard."""

    def __init__(self, queue: Queue, authenticator: Authenticator, sessions: Sessions, hosts: Hosts) -> None:
        self.queue = queue
        self.authenticator = authenticator
        self.sessions = sessions
        self.hosts = hosts
        self.pool = Pool()
        self.counting = Pool(1, "onerow-count")  # threads of the other pool wait for it
        self.background = BackgroundWork()
        self.log_in_rate = LogInRate()
        self.pull_watch = PullWatch(queue)
        self.scale = ScaleAnswers(lambda pipeline, state: _decide(queue, pipeline, state))
        self._views: dict[str | None, Views] = {}
        self.metrics = CachedMetrics(StoreMetrics(queue, self.views(queue)))

    def views(self, queue: Queue) -> Views:
        """Return the views of a queue, kept so that their caches serve all requests."""
        user = queue.user_id
        if len(self._views) > 1_000:
            self._views.clear()
        if (found := self._views.get(user)) is None:
            found = Views(queue, BackgroundCounts(self.counting.submit, first_within=None))
        return self._views.setdefault(user, found)

    def close(self) -> None:
        """End the threads; the queue stays open, because its owner may use it elsewhere."""
        self.pool.close()
        self.counting.close()


def _decide(queue: Queue, pipeline: str, state: ScaleState) -> Decision:
    return Scaler(queue, ScaleSettings(), scope=[pipeline] if pipeline else (), live_slots=True).decide(state)
