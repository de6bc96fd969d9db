"""Jobs: entered with their posts, purged, tagged again; the commands."""

import json
import os
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ai_tagger.jobs import tagging
from ai_tagger.offline.model_server import ModelServer
from ai_tagger.opening import open_queue
from ai_tagger.posts import read_posts, retag, retry_failed, sync_posts
from ai_tagger.settings import Settings
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


LINE = '{"workspace": "w", "account": "a", "id": "1", "text": "안녕 🙂"}'


@pytest.mark.parametrize(
    "old, new, problem",
    [
        ("안녕", "x" * 10_001, "text is longer than 10,000 characters"),
        ("안녕 🙂", "", "text is empty"),
        ("안녕 🙂", " \\n\u3000", "text is empty"),
        ('"w"', '" w"', "workspace begins or ends with white space"),
        ('"a"', '"a\u00a0"', "account begins or ends with white space"),
        ('"1"', f'"{"1" * 201}"', "id is longer than 200 characters"),
        ('"a"', '"a\\u0000b"', "account has a NUL character"),
        ("안녕", "\\ud83d", "half of a surrogate pair"),
        ("안녕", "\ud83d", "half of a surrogate pair"),
    ],
)
def test_a_line_that_cannot_be_stored_is_refused_in_plain_words(old: str, new: str, problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_posts([LINE, LINE.replace(old, new)])
    assert str(caught.value).startswith(f"input, line 2: {problem}")


def test_backslash_u0000_as_text_is_no_nul_character(desk: Desk) -> None:
    posts = read_posts([LINE.replace("안녕", r"\\u0000").replace('"a"', r'"\\u0000"')])
    assert (posts[0].text, posts[0].account) == (r"\u0000 🙂", r"\u0000")
    assert sync_posts(desk.settings, posts).new == 1


def test_files_are_utf_8_with_or_without_a_mark_at_the_start(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "posts.jsonl"
    file.write_bytes(f"{LINE}\r\n\r\n".encode("utf-8-sig"))
    assert desk.run("sync", str(file)).stdout.startswith("1 new")
    assert desk.run("sync", stdin=f"\ufeff{LINE}").stdout.startswith("0 new, 0 changed, 1 unchanged")
    file.write_bytes(f"{LINE}\n{LINE}".encode("cp949", "replace"))
    done = desk.run("sync", str(file))
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert f"{file}, line 1: not UTF-8" in done.stderr


def test_a_file_without_posts_is_said_to_be_empty(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "posts.jsonl"
    file.write_bytes(b"\n")
    assert (desk.run("sync", str(file)).exit_code, desk.run("sync", str(file)).stdout) == (0, f"no posts in {file}\n")
    assert desk.run("sync").stdout == "no posts in standard input\n"


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
    accounts = {each["account"]: each for each in json.loads(desk.run("report", "--json").stdout)["accounts"]}
    cats, cafe = accounts["貓咪日記"], accounts["카페 ☕"]
    assert (cats["posts"], cats["tagged"], cats["pending"], cats["tags"]) == (1, 1, 1, {"pets": 1})
    assert (cafe["tagged"], cafe["tags"], cafe["took_part_in_calls"], cafe["pending"]) == (
        2,
        {"food": 1, "sports": 1},
        1,
        0,
    )
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


@pytest.mark.parametrize("command", ["worker", "retag --failed"])
def test_a_database_that_is_not_set_up_stays_empty(postgres_url: str, desk: Desk, command: str) -> None:
    done = desk.run(*command.split(), url=postgres_url)
    assert done.stderr == "Error: the database is not set up; run as the owner of the database: tagger setup\n"
    assert desk.sql("SELECT tablename FROM pg_tables WHERE schemaname IN ('public', 'onerow')", url=postgres_url) == []


def test_a_login_without_rights_learns_which_it_needs(desk: Desk) -> None:
    login = desk.member("cafe")
    role = urlsplit(login).username
    for command in ("worker", "retag --failed", "retag --all --yes"):
        done = desk.run(*command.split(), url=login)
        assert done.stderr.startswith(f"Error: the login {role} may not write; ")
        assert f"GRANT {desk.settings.service_role} TO {role}" in done.stderr
    done = desk.run("sync", url=login, stdin=LINE)
    assert f"GRANT {desk.settings.service_role} TO {role}" in done.stderr
    assert f"tagger setup --member {role}=WORKSPACE" in done.stderr
    assert "CREATEROLE" in desk.run("setup", url=login).stderr
    open_queue(Settings(database_url=login)).close()


def test_a_worker_ends_with_one_line_if_its_database_is_missing(desk: Desk) -> None:
    done = desk.run("worker", url=f"{desk.owner_url}_none")
    assert done.stderr.count("\n") == 1
    assert "does not exist" in done.stderr


def test_a_worker_says_which_model_it_uses(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "execv", lambda *command: None)
    assert desk.run("worker").stderr == "tags with the offline tagger\n"
    monkeypatch.setenv("TAGGER_MODEL_URL", "http://127.0.0.1:9/path/v1")
    assert desk.run("worker").stderr == "tags with gpt-4o-mini at 127.0.0.1:9\n"


def test_all_posts_are_tagged_again_after_a_question(desk: Desk, model: ModelServer) -> None:
    desk.sync(a_post(1), a_post(2, workspace="gym"))
    desk.work()
    assert desk.run("retag", "--all", stdin="n\n").exit_code == 1
    asked = desk.run("retag", "--all", stdin="y\n")
    assert "again, with small-model at 127.0.0.1" in asked.stderr
    assert asked.stdout == "2 post(s) to tag\n"
    assert desk.run("retag", "--all", "--yes").stdout == "2 post(s) to tag\n"
    assert desk.run("retag", "--workspace", "gym").exit_code == 2
    assert "--workspace" in desk.run("retag", "--account", "카페 ☕").stderr
    assert desk.run("retag", "--account", "카페 ☕", "--workspace", "gym").stdout == "1 post(s) to tag\n"


def test_members_are_checked_before_anything_is_done(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from ai_tagger import database

    def never(*given: object) -> None:
        raise AssertionError

    for name in ("set_up", "add_member"):
        monkeypatch.setattr(database, name, never)
    role = desk.settings.members_role
    for wrong, said in (
        ("ann", "not ROLE=WORKSPACE"),
        ("ann= x", "not ROLE"),
        ("Ann B=x", 'CREATE ROLE "Ann B" LOGIN'),
    ):
        for option in ("--member", "--remove-member"):
            done = desk.run("setup", "--member", f"{role}=cafe", option, wrong)
            assert done.exit_code == 1
            assert said in done.stderr


def test_a_member_is_removed(desk: Desk) -> None:
    desk.sync(a_post())
    login = desk.member("cafe")
    assert len(desk.sql("SELECT id FROM workspace_threads_posts", url=login)) == 1
    done = desk.run("setup", "--remove-member", f"{urlsplit(login).username}=cafe", url=desk.owner_url)
    assert "no longer reads the workspace cafe" in done.stdout
    assert desk.sql("SELECT id FROM workspace_threads_posts", url=login) == []


def test_the_version_is_that_of_the_package(desk: Desk) -> None:
    project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8"))
    assert desk.run("--version").stdout == f"tagger, version {project['project']['version']}\n"
