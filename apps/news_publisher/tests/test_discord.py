"""Posting to Discord: requests, the outcome of each answer, and rate limits."""

import logging
from collections.abc import Iterator

import httpx
import pytest

from apps.news_publisher.tests.kit import Desk, an_item
from news_publisher.discord import BotDiscord, Discord, Limited, Posted, Refused, Unknown, nonce_of
from news_publisher.message import cut, message_of
from news_publisher.offline.discord_server import BOT_TOKEN, CHANNEL_ID, WEBHOOK_TOKEN, Answer, DiscordServer, too_many
from news_publisher.rate_limits import RateLimits
from onerow import BadInput

MESSAGE = message_of(an_item())


@pytest.fixture
def webhook(discord: DiscordServer) -> Iterator[Discord]:
    found = Discord(discord.webhook)
    yield found
    found.close()


@pytest.fixture
def bot(discord: DiscordServer) -> Iterator[BotDiscord]:
    found = BotDiscord(BOT_TOKEN, CHANNEL_ID, api=discord.api)
    yield found
    found.close()


def test_a_webhook_is_asked_to_wait_and_gives_the_message(discord: DiscordServer, webhook: Discord) -> None:
    outcome = webhook.post(MESSAGE, "k")
    assert outcome == Posted(discord.messages[0]["id"])
    assert discord.requests[0]["path"].endswith("?wait=true")


def test_a_thread_that_the_webhook_names_is_kept(discord: DiscordServer) -> None:
    webhook = Discord(f"{discord.webhook}?thread_id=5")
    assert isinstance(webhook.post(MESSAGE, "k"), Posted)
    assert discord.requests[0]["path"].endswith("?thread_id=5&wait=true")
    webhook.close()


@pytest.mark.contract("A webhook's nonce is not counted on, because Discord ignores it.")
def test_a_webhooks_nonce_is_ignored_by_discord_so_none_is_sent(discord: DiscordServer, webhook: Discord) -> None:
    with httpx.Client() as client:
        for _ in range(2):
            body = {**MESSAGE, "nonce": "same", "enforce_nonce": True}
            assert client.post(discord.webhook, params={"wait": "true"}, json=body).status_code == 200
    assert len(discord.messages) == 2
    assert not webhook.deduplicates
    webhook.post(MESSAGE, "k")
    assert "nonce" not in discord.requests[-1]["body"]


def test_the_same_key_as_a_bot_gives_the_same_message(discord: DiscordServer, bot: BotDiscord) -> None:
    first, second, other = bot.post(MESSAGE, "k"), bot.post(MESSAGE, "k"), bot.post(MESSAGE, "다른 키")
    assert first == second != other
    assert len(discord.messages) == 2
    body = discord.requests[0]["body"]
    assert (body["nonce"], body["enforce_nonce"]) == (nonce_of("k"), True)
    assert len(body["nonce"]) == 25


def test_every_answer_is_read_for_what_it_says_about_the_message(discord: DiscordServer, webhook: Discord) -> None:
    answers = [Answer(500), Answer(204), Answer(0, drop=True), Answer(400, {"message": "Invalid Form Body"})]
    discord.instead.extend(answers)
    outcomes = [webhook.post(MESSAGE, "k") for _ in answers]
    assert [type(outcome) for outcome in outcomes] == [Unknown, Unknown, Unknown, Refused]
    assert outcomes[3] == Refused("Discord answered 400 Invalid Form Body")


def test_a_webhook_that_is_gone_and_a_wrong_token_refuse_everyone_and_say_what_to_set(discord: DiscordServer) -> None:
    gone, stranger = Discord(f"{discord.url}/api/webhooks/1/gone"), BotDiscord("wrong", CHANNEL_ID, api=discord.api)
    for each, variable in ((gone, "NEWS_DISCORD_WEBHOOK"), (stranger, "NEWS_DISCORD_TOKEN")):
        outcome = each.post(MESSAGE, "k")
        assert isinstance(outcome, Refused)
        assert outcome.to_all
        assert variable in outcome.reason
        each.close()


def test_nobody_there_means_surely_not_posted_and_a_longer_wait_each_time() -> None:
    away = Discord("http://127.0.0.1:1/api/webhooks/1/x")
    outcomes = [away.post(MESSAGE, "k") for _ in range(3)]
    assert [outcome.after for outcome in outcomes if isinstance(outcome, Limited)] == [1, 2, 4]
    assert away.limits.wait() > 3
    away.close()


def test_rate_limits_are_read_from_body_and_headers() -> None:
    now = 0.0
    limits = RateLimits(clock=lambda: now)
    limits.reached({"X-RateLimit-Remaining": "1", "X-RateLimit-Reset-After": "9"})
    assert limits.wait() == 0
    limits.reached({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset-After": "1.5"})
    assert limits.wait() == 1.5
    assert limits.refused({"Retry-After": "3"}, {"retry_after": 2.25, "global": False}) == (2.25, False)
    assert limits.refused({"Retry-After": "3"}, None) == (3, False)  # from a proxy in front of Discord
    assert limits.refused({}, {"retry_after": 4, "global": True}) == (4, True)
    assert limits.refused({"X-RateLimit-Global": "true"}, "nonsense") == (60, True)
    now = 59.0
    assert limits.wait() == 1.0


@pytest.mark.contract("Title, url and content become an embed within Discord's limits, in any language.")
def test_title_url_and_content_become_an_embed_within_discords_limits(discord: DiscordServer, webhook: Discord) -> None:
    long = an_item(title="👩‍👩‍👧‍👦 가족 " * 100, content="긴 본문 🗞️ " * 2_000)
    for item in (an_item(), long, an_item(title="", content=None, category=None), an_item(title="", url="")):
        assert isinstance(webhook.post(message_of(item), "k"), Posted)
    plain, cut_down, bare, nothing = (message["embeds"][0] for message in discord.messages)
    assert plain == {
        "title": "제목 1 🗞️",
        "url": "https://news.example/1",
        "description": "본문",
        "footer": {"text": "naver · 기술"},
    }
    assert cut_down["title"].endswith("…")
    assert cut_down["description"].startswith("긴 본문 🗞️")
    assert (bare["title"], nothing["title"]) == ("https://news.example/1", "naver:a1")
    assert "url" not in nothing


@pytest.mark.parametrize(
    "text", ["a" * 20, "가" * 20, "🗞️" * 20, "👩‍👩‍👧‍👦" * 5, "🇰🇷" * 10, "e\u0301" * 20, "👍🏽" * 10]
)
def test_a_cut_is_short_enough_and_breaks_no_character(text: str) -> None:
    for most in range(2, 20):
        short = cut(text, most)
        assert len(short.encode("utf-16-le")) // 2 <= most
        kept = short.removesuffix("…")
        assert text.startswith(kept)
        assert not kept.endswith(("\u200d",))
        rest = text[len(kept) :]
        assert not kept or not rest.startswith(("\u200d", "\ufe0f", "\u0301", "\U0001f3fd"))
    assert cut(text, 1_000) == text


@pytest.mark.contract("No article can mention anyone.")
def test_no_article_can_mention_anyone(discord: DiscordServer, webhook: Discord) -> None:
    webhook.post(message_of(an_item(title="@everyone", content="@here <@&1> <@2>")), "k")
    assert discord.messages[0]["allowed_mentions"] == {"parse": []}
    assert "content" not in discord.messages[0]


@pytest.mark.parametrize(
    "url", ["", "discord.com/api/webhooks/1/secret-token", "http://discord.com/api/webhooks/1/secret-token"]
)
def test_a_webhook_url_that_is_none_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(BadInput, match="https://") as refused:
        Discord(url)
    assert "secret-token" not in str(refused.value)


@pytest.mark.contract("Webhook URLs and tokens stand in no log, error or record.")
def test_webhook_urls_and_tokens_stand_in_no_log_error_or_record(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    queue = desk.new_queue()
    caplog.set_level(logging.INFO)
    for name in ("httpx", "httpcore", "news_publisher"):
        caplog.set_level(logging.DEBUG, logger=name)
    for mode, secret in (("webhook", desk.server.webhook), ("bot", BOT_TOKEN)):
        refused = Answer(400, {"message": f"don't know {secret}"})
        for number, answer in enumerate([refused, Answer(500), Answer(0, drop=True), too_many(0.01), None]):
            queue.enqueue(an_item(number, unique_id=f"{mode}:{number}"))
            if answer is not None:
                desk.server.instead.append(answer)
            desk.publisher(mode, queue=queue).run(once=True, interval=0.05)
        gone = Discord(f"{desk.server.url}/api/webhooks/1/{WEBHOOK_TOKEN}")
        assert WEBHOOK_TOKEN not in str(gone.post(MESSAGE, "k"))
        assert WEBHOOK_TOKEN not in repr(gone)
        gone.close()
    records = "".join(str(row) for row in desk.database["task_queue"].find())
    assert "400" in records
    for secret in (WEBHOOK_TOKEN, BOT_TOKEN):
        assert secret not in caplog.text
        assert secret not in records
    assert "/api/webhooks" in caplog.text, "httpx does log what it asks for"
