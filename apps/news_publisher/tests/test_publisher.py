"""The publisher: intent before the message id; unknown outcomes, rate limits and refusals."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from apps.news_publisher.tests.kit import Desk, an_item, until
from news_publisher import MongoDBQueue, QueueStatus
from news_publisher.message import message_of
from news_publisher.offline.discord_server import Answer, too_many
from news_publisher.publisher import NowhereToPost
from onerow import BadInput, UnknownName

MODES = pytest.mark.parametrize("mode", ["webhook", "bot"])


def leave_in_doubt(desk: Desk, number: int = 1, mode: str = "webhook", ago: timedelta = timedelta(0)) -> None:
    """Leave an article whose publisher crashed after posting, before it recorded the message id."""
    queue = desk.new_queue()
    queue.enqueue(an_item(number))
    (item,) = [taken for taken in queue.dequeue(100) if taken.article_id == f"a{number}"]
    target = desk.connect(mode)
    at = (queue.now() - ago).isoformat()
    queue.remember(item.unique_id, "intent", {"at": at, "mode": mode, "target": target.target})
    target.post(message_of(item), queue.key_of(item.unique_id))
    queue.close()


def status(desk: Desk, number: int = 1) -> tuple[str, str]:
    item = desk.new_queue().find(f"naver:a{number}")
    assert item is not None
    return item.status, item.error_message or ""


@MODES
@pytest.mark.contract("Posts to a Discord webhook with ?wait=true and keeps the message's id.")
def test_what_is_pending_is_posted_and_the_messages_id_is_kept(desk: Desk, mode: str) -> None:
    queue = desk.new_queue()
    for number in range(3):
        queue.enqueue(an_item(number))
    assert desk.publisher(mode).run(once=True) == {"published": 3}
    assert desk.server.urls == [f"https://news.example/{number}" for number in range(3)]
    for number, message in enumerate(desk.server.messages):
        row = desk.row(f"naver:a{number}")
        assert row["results"]["publish"] == {"message_id": message["id"], "mode": mode}
        assert row["status"] == "completed"
        known = desk.database["published_articles"].find_one({"_id": f"naver:a{number}"})
        assert known is not None
        assert known["message_id"] == message["id"]
    if mode == "webhook":
        assert all(request["path"].endswith("?wait=true") for request in desk.server.requests)


@MODES
@pytest.mark.contract("Before a post the intent is recorded, and after it the message's id.")
def test_before_the_post_the_intent_is_recorded_and_after_it_the_id(desk: Desk, mode: str) -> None:
    queue = desk.new_queue()
    queue.enqueue(an_item())
    seen: list[dict[str, Any]] = []
    desk.server.before = lambda: seen.append(desk.row("naver:a1"))
    desk.publisher(mode).run(once=True)
    (during,) = seen
    assert during["status"] == "processing"
    assert set(during["steps"]["publish"]) == {"intent"}
    assert during["steps"]["publish"]["intent"]["result"]["mode"] == mode
    after = desk.row("naver:a1")["steps"]["publish"]
    assert after["message"]["result"]["message_id"] == desk.server.messages[0]["id"]


@pytest.mark.contract(
    "Posted through a webhook, then crashed: it ends FAILED 'maybe published', and is not posted again."
)
def test_posted_through_a_webhook_then_crashed_ends_failed_maybe_published_and_is_not_posted_again(desk: Desk) -> None:
    leave_in_doubt(desk)
    assert desk.publisher().run(once=True) == {"held": 1}
    state, error = status(desk)
    assert state == QueueStatus.FAILED
    assert error.startswith("maybe published")
    assert "news decide naver:a1" in error
    assert len(desk.server.messages) == 1


@pytest.mark.parametrize("answer", [Answer(500), Answer(0, drop=True), Answer(204)])
def test_an_answer_that_was_lost_is_a_doubt_too(desk: Desk, answer: Answer) -> None:
    desk.new_queue().enqueue(an_item())
    desk.server.after_creating.append(answer)
    assert desk.publisher().run(once=True) == {"held": 1}
    assert status(desk)[1].startswith("maybe published")
    assert len(desk.server.messages) == 1


@pytest.mark.contract("retry_failed leaves what was maybe published alone.")
def test_retry_failed_leaves_what_was_maybe_published_alone(desk: Desk) -> None:
    leave_in_doubt(desk)
    desk.publisher().run(once=True)
    queue = desk.new_queue(retry_wait="0s")
    assert queue.retry_failed(max_retries=100) == 0
    assert [item.unique_id for item in queue.maybe_published()] == ["naver:a1"]
    assert desk.publisher().run(once=True) == {}
    assert len(desk.server.messages) == 1


@pytest.mark.contract("A person decides about what was maybe published: it was, or it is published again.")
def test_a_person_decides_that_it_was_published_or_is_published_again(desk: Desk) -> None:
    for number in (1, 2):
        leave_in_doubt(desk, number)
    desk.publisher().run(once=True)
    queue = desk.new_queue()
    assert queue.decide_published("naver:a1", "4711").status == QueueStatus.COMPLETED
    assert desk.row("naver:a1")["results"]["publish"] == {"message_id": "4711"}
    assert queue.decide_again("naver:a2").status == QueueStatus.PENDING
    assert desk.publisher().run(once=True) == {"published": 1}
    assert desk.server.urls == [f"https://news.example/{number}" for number in (1, 2, 2)]
    assert queue.maybe_published() == []
    with pytest.raises(BadInput, match="is completed"):
        queue.decide_again("naver:a1")
    with pytest.raises(UnknownName, match="news status"):
        queue.decide_again("unknown")


@pytest.mark.contract("With on_doubt=resend what was maybe published is posted again.")
def test_with_on_doubt_resend_what_was_maybe_published_is_posted_again(desk: Desk) -> None:
    leave_in_doubt(desk)
    assert desk.publisher(on_doubt="resend").run(once=True) == {"published": 1}
    assert desk.server.urls == ["https://news.example/1"] * 2
    assert status(desk)[0] == QueueStatus.COMPLETED


@pytest.mark.contract("As a bot, with nonce and enforce_nonce, posted and then crashed ends as one message.")
def test_as_a_bot_with_a_nonce_posted_and_then_crashed_ends_as_one_message(desk: Desk) -> None:
    leave_in_doubt(desk, mode="bot")
    assert desk.publisher("bot").run(once=True) == {"published": 1}
    assert len(desk.server.messages) == 1
    assert len(desk.server.requests) == 2
    assert desk.row("naver:a1")["results"]["publish"]["message_id"] == desk.server.messages[0]["id"]


def test_as_a_bot_a_lost_answer_is_asked_for_again_at_once(desk: Desk) -> None:
    desk.new_queue().enqueue(an_item())
    desk.server.after_creating.append(Answer(502))
    assert desk.publisher("bot").run(once=True) == {"published": 1}
    assert len(desk.server.messages) == 1


@pytest.mark.contract("A nonce older than Discord remembers is not counted on.")
@pytest.mark.parametrize("change", ["too long ago", "another target", "through a webhook"])
def test_a_nonce_that_discord_may_have_forgotten_is_not_counted_on(desk: Desk, change: str) -> None:
    match change:
        case "too long ago":
            leave_in_doubt(desk, mode="bot", ago=timedelta(minutes=3))
        case "another target" | "through a webhook":
            leave_in_doubt(desk, mode="webhook")
    assert desk.publisher("bot").run(once=True) == {"held": 1}
    assert status(desk)[1].startswith("maybe published")
    assert len(desk.server.messages) == 1


@MODES
@pytest.mark.contract("After a 429 nothing is sent until retry_after is over, and then the article is published.")
@pytest.mark.contract("After a global 429 nothing is sent until retry_after is over.")
@pytest.mark.parametrize("everything", [False, True])
def test_after_a_429_nothing_is_sent_until_retry_after_is_over(desk: Desk, mode: str, everything: bool) -> None:
    queue = desk.new_queue()
    for number in range(2):
        queue.enqueue(an_item(number))
    desk.server.instead.append(too_many(0.7, everything=everything))
    assert desk.publisher(mode).run(once=True) == {"published": 2}
    times = [request["at"] for request in desk.server.requests]
    assert len(times) == 3
    assert times[1] - times[0] >= 0.7
    assert len(desk.server.messages) == 2


def test_a_429_leaves_no_doubt_behind(desk: Desk) -> None:
    queue = desk.new_queue()
    queue.enqueue(an_item())
    desk.server.instead.append(too_many(3_600))
    publisher = desk.publisher()
    assert publisher.run(once=True) == {"put off": 1}
    row = desk.row("naver:a1")
    assert (row["status"], row["retry_count"], row["steps"]["publish"]["intent"].get("result")) == ("waiting", 0, None)
    assert queue.dequeue() == []
    assert len(desk.server.requests) == 1


@pytest.mark.contract("When X-RateLimit-Remaining is 0, nothing is sent until X-RateLimit-Reset-After is over.")
def test_when_no_request_is_left_nothing_is_sent_until_the_reset(desk: Desk) -> None:
    desk.server._limit, desk.server._per = 2, 0.7
    queue = desk.new_queue()
    for number in range(5):
        queue.enqueue(an_item(number))
    assert desk.publisher().run(once=True) == {"published": 5}
    assert len(desk.server.requests) == 5, "not one request was refused"
    assert len(desk.server.messages) == 5


@pytest.mark.contract("While Discord is away or refuses everyone, no article is used up.")
def test_while_discord_refuses_everyone_no_article_is_used_up(desk: Desk) -> None:
    queue = desk.new_queue()
    for number in range(3):
        queue.enqueue(an_item(number))
    mine = desk.new_queue()
    desk.server.instead.append(Answer(404, {"message": "Unknown Webhook"}))
    with pytest.raises(NowhereToPost, match="NEWS_DISCORD_WEBHOOK"):
        desk.publisher(queue=mine).run(once=True)
    mine.close()
    assert queue.get_status() == {"pending": 3, "processing": 0, "completed": 0, "failed": 0, "total": 3}
    assert desk.publisher().run(once=True) == {"published": 3}
    assert desk.server.urls == [f"https://news.example/{number}" for number in range(3)]


@pytest.mark.contract("While Discord is away or refuses everyone, no article is used up.")
def test_while_discord_is_away_no_article_is_used_up(desk: Desk) -> None:
    queue = desk.new_queue()
    queue.enqueue(an_item())
    stop = threading.Event()
    publisher = desk.publisher(stop=stop)
    desk.server.close()
    threading.Timer(1.5, stop.set).start()
    assert publisher.run() == {"put off": 1}
    item = queue.find("naver:a1")
    assert item is not None
    assert (item.status, item.retry_count) == (QueueStatus.PENDING, 0)


def test_an_article_that_discord_refuses_fails_and_the_others_go_on(desk: Desk) -> None:
    queue = desk.new_queue(retry_wait="0s")
    for number in range(2):
        queue.enqueue(an_item(number))
    desk.server.instead.append(Answer(400, {"message": "Invalid Form Body", "code": 50035}))
    assert desk.publisher().run(once=True) == {"failed": 1, "published": 1}
    assert status(desk, 0) == (QueueStatus.FAILED, "Discord answered 400 Invalid Form Body")
    assert queue.maybe_published() == []
    assert queue.retry_failed(3) == 1
    assert desk.publisher().run(once=True) == {"published": 1}


def test_an_article_that_someone_cancels_is_not_posted(desk: Desk) -> None:
    queue = desk.new_queue()
    queue.enqueue(an_item())
    (item,) = queue.dequeue()
    queue.queue.cancel(item.item_id or "")
    assert desk.publisher(queue=queue).publish(item) == "cancelled"
    assert status(desk) == (QueueStatus.FAILED, "cancelled")
    assert desk.server.messages == []


def test_a_publisher_that_lost_its_article_posts_nothing(desk: Desk) -> None:
    hung, other = desk.new_queue(lease_for="300ms"), desk.new_queue(lease_for="300ms")
    hung.enqueue(an_item())
    (item,) = hung.dequeue()
    hung._puller._heartbeat.stop()
    until(other.dequeue, "the article that was lost")
    assert desk.publisher(queue=hung).publish(item) == "lost"
    assert desk.server.requests == []


def test_a_stop_lets_the_rest_go_back(desk: Desk) -> None:
    queue: MongoDBQueue = desk.new_queue()
    for number in range(4):
        queue.enqueue(an_item(number))
    stop = threading.Event()
    desk.server.before = stop.set
    mine = desk.new_queue()
    assert desk.publisher(queue=mine, stop=stop).run() == {"published": 1}
    mine.close()
    assert queue.get_status() == {"pending": 3, "processing": 0, "completed": 1, "failed": 0, "total": 4}


def test_another_word_for_on_doubt_is_refused(desk: Desk) -> None:
    with pytest.raises(BadInput, match="'hold' or 'resend'"):
        desk.publisher(on_doubt="maybe")
