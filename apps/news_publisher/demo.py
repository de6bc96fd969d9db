"""`make publisher`: publish articles in several languages to a fake Discord, and kill a publisher at the worst moment.

MongoDB is the test server, which is fetched if it is not here, or the server of NEWS_MONGO_URL, with a separate database.
"""

import os
import signal
import subprocess
import sys
import time
from typing import Any
from uuid import uuid4

from pymongo import MongoClient

from news_publisher.offline.discord_server import DiscordServer
from news_publisher.offline.samples import sample_articles
from tests.servers import CACHE, Missing
from tests.servers.fetch import _once as fetch_once
from tests.servers.fetch import fetch_mongo
from tests.servers.mongo import MongoDatabases, open_mongo


class Story:
    """Runs and prints the commands that a user would type."""

    def __init__(self, mongo_url: str, discord: DiscordServer) -> None:
        self._discord = discord
        self._environment = {
            **os.environ, **discord.environment, "NEWS_MONGO_URL": mongo_url, "NEWS_LEASE": "2s", "NEWS_DISCORD_TOKEN": ""
        }  # fmt: skip

    def news(self, *words: str) -> None:
        self._show(*words)
        subprocess.run(self._command(*words), env=self._environment, check=True, timeout=120)

    def killed_after(self, messages: int, *words: str) -> None:
        """Run a command, and kill it with kill -9 as soon as the channel has `messages` messages."""
        self._show(*words)
        process = subprocess.Popen(self._command(*words), env=self._environment)
        while len(self._discord.messages) < messages and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "news_publisher", *words]

    def _show(self, *words: str) -> None:
        print(f"\n$ news {' '.join(words)}", flush=True)


def tell(mongo_url: str, discord: DiscordServer) -> None:
    story = Story(mongo_url, discord)
    with MongoClient[Any](mongo_url) as client:
        client.get_default_database()["articles"].insert_many(sample_articles())
    story.news("collect")
    discord.after = lambda: time.sleep(60 if len(discord.messages) == 3 else 0)
    story.killed_after(3, "publish")
    discord.after = lambda: None
    print("\n… killed with kill -9: the third message is on Discord, and its publisher never heard of it.")
    time.sleep(2.5)
    story.news("publish", "--once")
    story.news("status")
    third = discord.messages[2]
    print(f"\nA person looks at the channel and finds it: message {third['id']}.")
    number = third["embeds"][0]["url"].rpartition("/")[2]
    platform = sample_articles()[int(number)]["platform"]
    story.news("decide", f"{platform}:sample-{number}", "--published", third["id"])
    story.news("status")
    print("\nThe channel:")
    for message in discord.messages:
        embed = message["embeds"][0]
        print(f"  {message['id']}  {embed['title']}  ({embed['footer']['text']})")


def main() -> None:
    try:
        given = os.environ.get("NEWS_MONGO_URL")
        if not given and not os.environ.get("ONEROW_TEST_MONGO_URL"):
            fetch_once("MongoDB", CACHE / "mongo", fetch_mongo)  # of the test servers only this one
        server = MongoDatabases(given) if given else open_mongo()
    except Missing as missing:
        sys.exit(str(missing))
    url = server.fresh_database().replace("/onerow_", f"/news_demo_{uuid4().hex[:4]}_")
    try:
        with DiscordServer(limit=5, per=2.0) as discord:
            tell(url, discord)
    finally:
        server.drop_database(url)
        server.close()


if __name__ == "__main__":
    main()
