"""Jobs: entered with their posts, purged, tagged again; the commands."""

import json

import pytest

from ai_tagger.jobs import tagging
from ai_tagger.offline.model_server import ModelServer
from ai_tagger.posts import read_posts, retag, retry_failed, sync_posts
from apps.ai_tagger.tests.kit import Desk, a_post, until
from onerow import BadInput, Queue
from tests.engine.kit import working


@pytest.mark.contract("Jobs are entered after posts are synced, in the same transaction.")
def test_posts_and_jobs_are_written_together_or_not_at_all(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from ai_tagger import posts

    def fail(*given: object, **options: object) -> None:
        raise RuntimeError("after the posts were written")

    with monkeypatch.context() as patched:
        patched.setattr(posts, "add_jobs", fail)
        with pytest.raises(RuntimeError):
            sync_posts(desk.settings, [a_post()])
    assert desk.tags() == {}
    assert desk.jobs() == []
    desk.sync(a_post(1), a_post(2))
    assert desk.tags() == {"t1": None, "t2": None}
    assert desk.jobs() == [("pending", 0, None)] * 2


def test_a_sync_adds_jobs_for_new_and_changed_posts_only(desk: Desk) -> None:
    first = sync_posts(desk.settings, [a_post(1), a_post(2), a_post(2)])
    desk.work()
    second = sync_posts(desk.settings, [a_post(1), a_post(2, text="a football match"), a_post(3)])
    assert [(each.new, each.changed, each.unchanged) for each in (first, second)] == [(2, 0, 0), (1, 1, 1)]
    assert sorted(job[0] for job in desk.jobs()) == ["completed", "completed", "pending", "pending"]
    desk.work()
    assert desk.tags() == {"t1": ["food"], "t2": ["sports"], "t3": ["food"]}


def test_a_wrong_line_is_named_and_nothing_is_written(desk: Desk) -> None:
    good = '{"workspace": "w", "account": "a", "id": "1", "text": "안녕 🙂"}'
    for wrong, named in (("{", "line 2"), ('{"workspace": "w"}', "account"), (good.replace("안녕", "\\u0000"), "NUL")):
        with pytest.raises(BadInput, match=named):
            read_posts([good, wrong])
    done = desk.run("sync", stdin=f"{good}\nnonsense\n")
    assert done.exit_code == 1
    assert "line 2" in done.stderr
    assert '"workspace"' in done.stderr  # what a line looks like
    assert desk.tags() == {}


@pytest.mark.contract("A post is tagged again at will.")
def test_a_post_is_tagged_again_at_will(desk: Desk, model: ModelServer) -> None:
    one, two = desk.sync(a_post(1), a_post(2))
    desk.work()
    assert retag(desk.settings, [one]) == 1
    assert retag(desk.settings, [one]) == 1  # its job is open: no second one
    desk.work()
    assert retag(desk.settings, account="카페 ☕") == 2
    desk.work()
    assert [len(call) for call in model.calls] == [2, 1, 2]
    for wrong in (["none"], ["5f0c6f0e-6f0b-4a55-9a4e-2f2f8f4f9d01"]):
        with pytest.raises(BadInput) as caught:
            retag(desk.settings, wrong)
        assert "tagger posts" in str(caught.value.fix)
    desk.sql("DELETE FROM workspace_threads_posts WHERE id = %s", two)
    retag(desk.settings, [one])
    desk.sql("UPDATE ai_tag_queue SET status = 'failed', error_message = 'no' WHERE status = 'pending'")
    assert retry_failed(desk.settings) == 1
    desk.work()
    assert len(model.calls) == 4


@pytest.mark.contract("SELECT and UPDATE are two statements: two workers take one row.")
def test_two_workers_never_take_one_row(desk: Desk, model: ModelServer) -> None:
    desk.sync(*(a_post(number) for number in range(120)))
    second = Queue(desk.settings.database_url).serve(tagging)  # with connections of its own, like another program
    with working(desk.queue), working(second):
        until(desk.all_ended, "the end")
    second.close()
    asked = [text for call in model.calls for text in call]
    assert len(asked) == len(set(asked)) == 120
    assert {attempt for _, attempt, _ in desk.jobs()} == {1}


@pytest.mark.contract("Or by a small offline tagger that ships with the app.")
def test_without_a_model_the_offline_tagger_is_used(desk: Desk) -> None:
    desk.sync(
        a_post(1, text="새로 나온 영화를 보고 왔다"),
        a_post(2, text="這家餐廳的料理很好吃"),
        a_post(3, text="Good morning."),
        a_post(4, text="我家的猫和电脑"),
    )
    desk.work()
    assert desk.tags() == {"t1": ["entertainment"], "t2": ["food"], "t3": [], "t4": ["technology", "pets"]}
    assert desk.sql("SELECT model, posts, input_tokens, cost FROM llm_usage_logs") == [("offline", 4, 0, 0)]


def test_the_commands(desk: Desk, model: ModelServer) -> None:
    lines = [
        json.dumps({"workspace": "cafe", "account": account, "id": str(number), "text": text}, ensure_ascii=False)
        for number, (account, text) in enumerate(
            [("카페 ☕", "맛있는 커피 요리"), ("카페 ☕", "축구 경기"), ("貓咪日記", "我家的貓")]
        )
    ]
    assert desk.run("sync", stdin="\n".join(lines)).stdout == "3 new, 0 changed, 0 unchanged; 3 to tag\n"
    done = desk.run_worker("--until-idle")
    assert done.returncode == 0, done.stderr
    (cat,) = json.loads(desk.run("posts", "--account", "貓咪日記", "--json").stdout)
    assert (cat["text"], cat["tags"], cat["tagged_by"]) == ("我家的貓", ["pets"], "small-model")
    assert desk.run("retag", cat["id"]).stdout == "1 post(s) to tag\n"
    accounts = {each["account"]: each for each in json.loads(desk.run("report", "--json").stdout)}
    cats, cafe = accounts["貓咪日記"], accounts["카페 ☕"]
    assert (cats["posts"], cats["tagged"], cats["pending"], cats["tags"]) == (1, 1, 1, {"pets": 1})
    assert (cafe["tagged"], cafe["tags"], cafe["calls"], cafe["pending"]) == (2, {"food": 1, "sports": 1}, 1, 0)
    assert float(cafe["cost"]) > 0
    shown = desk.run("report").stdout
    assert "貓咪日記" in shown
    assert "backlog: 1 pending" in shown
    assert desk.run("retag").exit_code == 2
    refused = desk.run("sync", url=desk.member("cafe"), stdin=lines[0].replace("커피", "차"))
    assert refused.exit_code == 1
    assert "permission denied" in refused.stderr
    assert isinstance(refused.exception, SystemExit)


def test_a_database_that_is_not_set_up_names_the_command(postgres_url: str, desk: Desk) -> None:
    done = desk.run("report", url=postgres_url)
    assert done.exit_code == 1
    assert "tagger setup" in done.stderr
    assert isinstance(done.exception, SystemExit)
