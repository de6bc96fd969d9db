"""The command `news`, and its configuration."""

import json
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from pymongo.database import Database

from apps.news_publisher.tests.kit import an_article
from news_publisher.cli import main
from news_publisher.config import Config
from news_publisher.discord import BotDiscord
from news_publisher.offline.discord_server import Answer, DiscordServer
from onerow import BadInput


class News:
    def __init__(self, environment: dict[str, str | None]) -> None:
        self.environment = environment

    def __call__(self, *words: str) -> Result:
        return CliRunner().invoke(main, list(words), env=self.environment)

    def said(self, *words: str) -> str:
        result = self(*words)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture
def news(mongo_url: str, discord: DiscordServer) -> News:
    return News({"NEWS_MONGO_URL": mongo_url, **discord.environment})


@pytest.mark.contract(
    "`news` collects, publishes, shows the status, retries, cleans and takes decisions, configured by the environment."
)
def test_news_collects_publishes_shows_retries_cleans_and_takes_decisions(
    news: News, database: Database[Any], discord: DiscordServer
) -> None:
    assert news.said("publish", "--once") == "nothing to publish\n"
    database["articles"].insert_many([an_article(number) for number in range(4)])
    assert news.said("collect", "--platform", "naver", "--limit", "3") == "3 article(s) added\n"
    assert news.said("collect", "--hours", "2") == "1 article(s) added\n"
    discord.instead.append(Answer(400, {"message": "Invalid Form Body"}))
    discord.after_creating.append(Answer(500))
    assert news.said("publish", "--once") == "1 failed, 1 held, 2 published\n"
    shown = news.said("status")
    assert "completed        2" in shown
    assert "Discord answered 400 Invalid Form Body" in shown
    counts = json.loads(news.said("status", "--json"))
    (held,) = counts.pop("maybe_published")
    assert counts == {"pending": 0, "processing": 0, "completed": 2, "failed": 2, "total": 4}
    assert held["title"].startswith("제목")
    assert news.said("retry", "--max-retries", "3") == "1 article(s) pending again\n"
    assert news.said("decide", held["unique_id"], "--published", "4711") == f"{held['unique_id']} is completed\n"
    assert news.said("clean", "--older-than", "7d") == "0 article(s) removed\n"
    assert news.said("clean") == "3 article(s) removed\n"
    assert news.said("collect") == "0 article(s) added\n"
    known = database["published_articles"].find_one({"_id": held["unique_id"]})
    assert known is not None
    assert known["message_id"] == "4711"


def test_every_command_says_what_it_does() -> None:
    for command in main.commands.values():
        assert command.help
        assert all(option.help for option in command.params if isinstance(option, click.Option))


@pytest.mark.parametrize(
    "words, message",
    [
        (["decide", "unknown", "--again"], "no item 'unknown'"),
        (["decide", "x"], "either --published"),
        (["decide", "x", "--again", "--published", "1"], "either --published"),
        (["clean", "--older-than", "soon"], "older_than"),
        (["collect", "--limit", "0"], "limit must be"),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(news: News, words: list[str], message: str) -> None:
    result = news(*words)
    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_webhook_that_is_gone_ends_the_publisher_and_says_what_to_set(
    news: News, database: Database[Any], discord: DiscordServer
) -> None:
    database["articles"].insert_one(an_article())
    news.said("collect")
    discord.instead.append(Answer(404, {"message": "Unknown Webhook"}))
    result = news("publish", "--once")
    assert result.exit_code == 1
    assert "NEWS_DISCORD_WEBHOOK" in result.output
    assert json.loads(news.said("status", "--json"))["pending"] == 1


@pytest.mark.parametrize("command", ["status", "collect", "retry"])
def test_a_database_that_is_away_is_said_without_its_password(command: str) -> None:
    url = "mongodb://ann:s3cr3t-word@127.0.0.1:1/news?serverSelectionTimeoutMS=100"
    result = News({"NEWS_MONGO_URL": url})(command)
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.output
    assert "s3cr3t-word" not in result.output
    assert "Traceback" not in result.output


def test_a_url_that_is_none_names_the_variable() -> None:
    result = News({"NEWS_MONGO_URL": "localhost"})("status")
    assert (result.exit_code, "NEWS_MONGO_URL" in result.output) == (1, True)


def test_the_configuration_is_read_from_the_environment() -> None:
    assert Config.of_environment({}) == Config()
    config = Config.of_environment(
        {
            "NEWS_MONGO_URL": "mongodb://db/x",
            "NEWS_COLLECTION": "news_queue",
            "NEWS_DISCORD_TOKEN": "a-token",
            "NEWS_DISCORD_CHANNEL": "42",
            "NEWS_ON_DOUBT": "resend",
            "NEWS_MAX_RETRIES": "5",
            "NEWS_LEASE": "1m",
        }
    )
    assert (config.collection, config.on_doubt, config.max_retries, config.lease) == ("news_queue", "resend", 5, "1m")
    assert "a-token" not in repr(config)
    found = config.discord()
    assert isinstance(found, BotDiscord)
    found.close()


@pytest.mark.parametrize(
    "environment, message",
    [
        ({"NEWS_ON_DOUBT": "maybe"}, "NEWS_ON_DOUBT must be hold or resend"),
        ({"NEWS_MAX_RETRIES": "some"}, "NEWS_MAX_RETRIES must be"),
        ({}, "set NEWS_DISCORD_WEBHOOK"),
        ({"NEWS_DISCORD_TOKEN": "t"}, "NEWS_DISCORD_CHANNEL"),
        ({"NEWS_DISCORD_TOKEN": "t", "NEWS_DISCORD_CHANNEL": "general"}, "is a number"),
    ],
)
def test_a_wrong_configuration_names_the_variable(environment: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Config.of_environment(environment).discord()
