"""The real publisher process, killed with kill -9 at every critical point."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from apps.news_publisher.tests.kit import PATIENCE, Desk, an_article, an_item, until
from news_publisher import MongoDBQueue, QueueStatus
from news_publisher.offline.discord_server import DiscordServer
from tests.servers.mongo import MongoServer

ROOT = Path(__file__).resolve().parents[3]
QUEUE, DISCORD = "news_publisher.mongodb_queue:MongoDBQueue", "news_publisher.discord:Discord"
POINTS = {
    "taken, nothing recorded": (f"before {QUEUE}.remember", "intent"),
    "the intent recorded, nothing posted": (f"before {DISCORD}.post", ""),
    "posted, the id not recorded": (f"after {DISCORD}.post", ""),
    "the id recorded, not in the published articles": (f"after {QUEUE}.remember", "message"),
    "in the published articles, not completed": (f"before {QUEUE}.mark_as_completed", ""),
    "completed, result not returned": (f"after {QUEUE}.mark_as_completed", ""),
}


class Programs:
    """Runs `news` as a user does."""

    def __init__(self, mongo_url: str, discord: dict[str, str]) -> None:
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("NEWS_")},
            **discord,
            "NEWS_MONGO_URL": mongo_url,
            "NEWS_LEASE": "1s",
            "PYTHONPATH": str(ROOT),
        }

    def start(self, *words: str, **more: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "apps.news_publisher.tests.killed", *words],
            cwd=ROOT,
            env=self._environment | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **more: str) -> tuple[int, str]:
        """Return (exit code, output)."""
        process = self.start(*words, **more)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out + err


@pytest.mark.faults
@pytest.mark.parametrize("mode", ["webhook", "bot"])
@pytest.mark.contract(
    "kill -9 of the publisher at any point loses nothing, skips nothing and doubles nothing that Discord can tell apart."
)
@pytest.mark.contract("An item in PROCESSING whose program crashed comes back and is published.")
@pytest.mark.contract(
    "Posted through a webhook, then crashed: it ends FAILED 'maybe published', and is not posted again."
)
@pytest.mark.contract("As a bot, with nonce and enforce_nonce, posted and then crashed ends as one message.")
@pytest.mark.contract("A person decides about what was maybe published: it was, or it is published again.")
def test_kill_9_at_any_point_loses_nothing_skips_nothing_and_doubles_nothing(
    desk: Desk, mongo_url: str, mode: str
) -> None:
    server = desk.server
    news = Programs(mongo_url, server.bot_environment if mode == "bot" else server.environment)
    queue = desk.new_queue()
    for number in range(len(POINTS)):
        queue.enqueue(an_item(number))
    # Each claims one article and crashes while holding it.
    dying = {
        point: news.start("publish", "--batch", "1", KILL_AT=kill_at, KILL_WORD=word)
        for point, (kill_at, word) in POINTS.items()
    }
    for point, process in dying.items():
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL, f"{point}: {said}"
    posted = set(server.urls)
    until(lambda: queue.abandoned() == 5, "the end of the leases")
    code, said = news.run("publish", "--once")
    assert code == 0, said

    doubtful = {item.url: item for item in queue.maybe_published()}
    if mode == "bot":
        assert doubtful == {}
    else:
        # Two crashed between intent and id; one of them had posted.
        assert {item.status for item in doubtful.values()} == {QueueStatus.FAILED}
        ((sent, was_sent),) = [(url, item) for url, item in doubtful.items() if url in posted]
        ((_, was_not),) = [(url, item) for url, item in doubtful.items() if url not in posted]
        assert Counter(server.urls) == dict.fromkeys(server.urls, 1), "nothing was posted again"
        message = next(each for each in server.messages if each["embeds"][0]["url"] == sent)
        assert news.run("decide", was_sent.unique_id, "--published", message["id"])[0] == 0
        assert news.run("decide", was_not.unique_id, "--again")[0] == 0
        assert news.run("publish", "--once")[0] == 0
    assert Counter(server.urls) == {f"https://news.example/{number}": 1 for number in range(len(POINTS))}
    assert queue.get_status() == {"pending": 0, "processing": 0, "completed": 6, "failed": 0, "total": 6}
    known = {row["_id"]: row["message_id"] for row in desk.database["published_articles"].find()}
    assert set(known) == {f"naver:a{number}" for number in range(len(POINTS))}
    assert set(known.values()) == {each["id"] for each in server.messages}


@pytest.mark.faults
@pytest.mark.slow  # the test above kills it at each point
def test_a_publisher_killed_again_and_again_at_any_moment_publishes_everything_once(desk: Desk, mongo_url: str) -> None:
    desk.database["articles"].insert_many([an_article(number) for number in range(30)])
    news = Programs(mongo_url, desk.server.bot_environment)
    assert news.run("collect")[0] == 0
    for enough in (5, 12, 20):
        process = news.start("publish", "--batch", "4")
        until(lambda enough=enough: len(desk.server.messages) >= enough, "some messages")  # type: ignore[misc]
        process.kill()
        process.communicate(timeout=PATIENCE)
    queue = desk.new_queue()
    until(lambda: queue.abandoned() == queue.get_status()["processing"], "the end of the leases")
    code, said = news.run("publish", "--once")
    assert code == 0, said
    assert Counter(desk.server.urls) == {f"https://news.example/{number}": 1 for number in range(30)}
    assert queue.get_status() == {"pending": 0, "processing": 0, "completed": 30, "failed": 0, "total": 30}


@pytest.mark.faults
def test_sigterm_finishes_the_article_at_hand_and_hands_the_others_back(desk: Desk, mongo_url: str) -> None:
    desk.database["articles"].insert_many([an_article(number) for number in range(30)])
    desk.server._limit, desk.server._per = 2, 0.5
    news = Programs(mongo_url, desk.server.environment)
    news.run("collect")
    process = news.start("publish")
    until(lambda: desk.server.messages, "the first message")
    process.terminate()
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "published" in out
    status = desk.new_queue().get_status()
    assert status["processing"] == 0
    assert status["completed"] == len(desk.server.messages)
    assert status["total"] == 30


@pytest.mark.faults
def test_what_was_posted_is_recorded_when_the_database_comes_back(
    own_mongo: MongoServer, discord: DiscordServer
) -> None:
    url = own_mongo.fresh_database()
    with MongoClient[Any](url, tz_aware=True) as client, MongoDBQueue(url=url) as queue:
        desk = Desk(client.get_default_database(), lambda: queue, discord)
        for number in range(3):
            queue.enqueue(an_item(number))

        back = threading.Timer(1.0, own_mongo.start)

        def crash_once() -> None:
            discord.after = lambda: None
            own_mongo.kill()
            back.start()

        discord.after = crash_once
        assert desk.publisher().run(once=True) == {"published": 3}
        back.join(PATIENCE)
        desk.close()
        assert discord.urls == [f"https://news.example/{number}" for number in range(3)]
        assert queue.get_status()["completed"] == 3
