"""The Discord publisher: it records an intent, posts, records the message id, then completes the item.

A crash leaves one of three states. No intent: nothing was posted, so post it. A message id: it was posted, so complete
the item. An intent without an id: the outcome is unknown. If Discord deduplicates (a bot's nonce, for a few minutes),
post it again with the same nonce; otherwise a person decides, or it is posted again if the user configured that.
"""

import logging
import threading
from collections import Counter
from datetime import datetime, timedelta
from typing import Any, Literal

from news_publisher.discord import Discord, Limited, Outcome, Posted, Refused, Unknown
from news_publisher.interface import Memory
from news_publisher.items import QueueItem
from news_publisher.message import message_of
from news_publisher.mongodb_queue import INTENT, MESSAGE
from news_publisher.patience import patiently
from news_publisher.published import PublishedArticles
from news_publisher.service import QueueService
from onerow import BadInput, OnerowError, StoreUnavailable

log = logging.getLogger("news_publisher")

OnDoubt = Literal["hold", "resend"]
Result = Literal["published", "failed", "held", "put off", "cancelled", "lost"]

MAYBE = "maybe published"
NONCE_WINDOW = timedelta(minutes=2)
"""Discord deduplicates nonces of 'the past few minutes'; this code relies on two."""
_TRIES = 3


class NowhereToPost(OnerowError):
    """The webhook, token or channel is wrong: Discord would refuse every article."""


class DiscordPublisher:
    """Claims pending articles and posts them one by one."""

    def __init__(
        self,
        service: QueueService,
        memory: Memory,
        discord: Discord,
        published: PublishedArticles,
        *,
        on_doubt: OnDoubt = "hold",
        max_wait: float = 60.0,
        nonce_window: timedelta = NONCE_WINDOW,
        stop: threading.Event | None = None,
    ) -> None:
        if on_doubt not in ("hold", "resend"):
            raise BadInput(f"on_doubt must be 'hold' or 'resend', not {on_doubt!r}", field="on_doubt")
        self._service = service
        self._memory = memory
        self._discord = discord
        self._published = published
        self._on_doubt = on_doubt
        self._max_wait = max_wait  # seconds to hold an item for a rate limit; for longer waits it is snoozed
        self._nonce_window = nonce_window
        self._stop = stop or threading.Event()

    def run(self, *, once: bool = False, limit: int = 10, interval: float = 1.0, max_retries: int = 0) -> Counter[str]:
        """Publish pending articles until stopped; with `once`, until none is pending or abandoned. Return the outcomes.

        With max_retries, call retry_failed_articles from time to time. Raise NowhereToPost if Discord refuses them all.
        """
        results: Counter[str] = Counter()
        retried_at: datetime | None = None
        while not self._stop.is_set():
            try:
                now = self._memory.now()
                if max_retries and (retried_at is None or now - retried_at > timedelta(seconds=30)):
                    self._service.retry_failed_articles(max_retries)
                    retried_at = now
                items = self._service.get_pending_articles(limit)
                if not items and once and not self._memory.abandoned():
                    break
            except StoreUnavailable as error:
                log.warning("%s", error)
                items = []
            for item in items:
                if self._stop.is_set():
                    break  # closing the queue hands the other items back
                results[self.publish(item)] += 1
            if not items:
                self._stop.wait(interval)
        return results

    def publish(self, item: QueueItem) -> Result:
        """Publish one article that this publisher holds; return the outcome."""
        name = item.unique_id
        if self._memory.recall(name, MESSAGE):
            return self._complete(item)  # posted by a publisher that crashed before it completed the item
        return self._post(item, self._memory.recall(name, INTENT))

    # ── posting ──

    def _post(self, item: QueueItem, earlier: dict[str, Any] | None) -> Result:
        name = item.unique_id
        key = self._memory.key_of(name)
        tries = 0
        while True:
            wait = self._discord.limits.wait()
            if wait > 0 and (wait > self._max_wait or self._stop.wait(wait)):
                return self._put_off(item, wait)
            if earlier and not self._may_resend(earlier):
                return self._hold(item, f"{MAYBE}: Discord's answer to the post of {earlier['at']} was never recorded")
            intent = earlier or self._new_intent()
            if not patiently(self._memory.remember, name, INTENT, intent):
                return self._lost(item)
            if self._memory.is_cancelled(name):
                return self._cancelled(item, earlier)
            outcome = self._discord.post(message_of(item), key)
            if isinstance(outcome, Limited):
                log.info("waiting %.1f s for Discord: %s", outcome.after, outcome.reason)
                # This request posted nothing; an earlier one with an unknown outcome may have.
                if not patiently(self._memory.remember, name, INTENT, earlier):
                    return self._lost(item)
                continue
            tries += 1
            if isinstance(outcome, Unknown) and self._discord.deduplicates and tries < _TRIES:
                earlier = intent
                if not self._stop.wait(tries):
                    continue
            return self._settle(item, outcome, earlier)

    def _settle(self, item: QueueItem, outcome: Outcome, earlier: dict[str, Any] | None) -> Result:
        name = item.unique_id
        match outcome:
            case Posted(message_id=message_id):
                said = {"message_id": message_id, "mode": self._discord.mode}
                if not patiently(self._memory.remember, name, MESSAGE, said):
                    log.error("%s was published as message %s, but its lease was lost: %s", name, message_id, MAYBE)
                    return "lost"
                return self._complete(item)
            case Refused(reason=reason, to_all=True):
                # Not caused by the article: it stays pending, and so do all others.
                patiently(self._memory.remember, name, INTENT, earlier)
                patiently(self._memory.hand_back, name)
                raise NowhereToPost(reason)
            case Refused(reason=reason) if earlier is None:
                # Nothing was posted, so the next attempt starts without an intent.
                patiently(self._memory.remember, name, INTENT, None)
                return self._fail(item, reason)
            case Refused(reason=reason) | Unknown(reason=reason):
                if self._on_doubt == "hold" and not self._discord.deduplicates:
                    return self._hold(item, f"{MAYBE}: {reason}")
                return self._fail(item, reason)
            case Limited():
                raise AssertionError("waited for elsewhere")

    def _may_resend(self, intent: dict[str, Any]) -> bool:
        """Whether posting again cannot create a duplicate, or duplicates are allowed."""
        age = patiently(self._memory.now) - datetime.fromisoformat(intent["at"])
        deduplicated = self._discord.deduplicates and intent["target"] == self._discord.target
        return (deduplicated and age < self._nonce_window) or self._on_doubt == "resend"

    def _new_intent(self) -> dict[str, Any]:
        return {
            "at": patiently(self._memory.now).isoformat(),
            "mode": self._discord.mode,
            "target": self._discord.target,
        }

    # ── outcomes ──

    def _complete(self, item: QueueItem) -> Result:
        said = self._memory.recall(item.unique_id, MESSAGE) or {}
        now = patiently(self._memory.now)
        patiently(self._published.add, item.unique_id, item.url, said.get("message_id"), now)
        if not patiently(self._service.mark_article_published, item.unique_id):
            return self._lost(item)
        log.info("published %s as message %s", item.unique_id, said.get("message_id"))
        return "published"

    def _fail(self, item: QueueItem, reason: str) -> Result:
        log.warning("%s was not published: %s", item.unique_id, reason)
        done = patiently(self._service.mark_article_failed, item.unique_id, reason)
        return "failed" if done else self._lost(item)

    def _hold(self, item: QueueItem, reason: str) -> Result:
        message = f"{reason}; look at the channel, then: news decide {item.unique_id} --published MESSAGE_ID | --again"
        log.warning("%s: %s", item.unique_id, message)
        return "held" if patiently(self._memory.give_up, item.unique_id, message) else self._lost(item)

    def _put_off(self, item: QueueItem, seconds: float) -> Result:
        span = timedelta(seconds=seconds)
        return "put off" if patiently(self._memory.put_off, item.unique_id, span) else self._lost(item)

    def _cancelled(self, item: QueueItem, earlier: dict[str, Any] | None) -> Result:
        patiently(self._memory.remember, item.unique_id, INTENT, earlier)
        patiently(self._memory.hand_back, item.unique_id)
        return "cancelled"

    def _lost(self, item: QueueItem) -> Result:
        log.warning("%s is in other hands now; nothing more is written", item.unique_id)
        return "lost"
