"""What the fragments of the pages need and readers don't see. A page names a fixture: <!-- fixture: NAME -->."""

import asyncio
import json
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import httpx
import psycopg
import pytest

from onerow import Permanent, Pipeline, Queue, Status, Worker
from onerow.engine.queue.lease import Leased
from onerow.testing import Rehearsal
from tests.docs.blocks import public_names
from tests.stores.postgres.test_callers import django_at
from tests.tables import old_tables

Names = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder in which the blocks of a page start."""
    folder = tmp_path / "page"
    folder.mkdir()
    return folder


@pytest.fixture
def names() -> Names:
    """The namespace of the Python blocks of a page."""
    return public_names()


@pytest.fixture
def queue(names: Names, sqlite_url: str) -> Queue:
    names["queue"] = Queue(sqlite_url)
    return names["queue"]  # type: ignore[no-any-return]


@pytest.fixture
def project(folder: Path) -> None:
    """A project folder, whose settings file names the store of `Queue()`."""
    (folder / "onerow.toml").write_text('store = "sqlite:///studio.db"\n', encoding="utf-8")


@pytest.fixture
def notebook(project: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt or a notebook: definitions may be run again."""
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)


def pipeline(name: str, *phases: str) -> Pipeline:
    """A pipeline with phases that only return their own name."""
    made = Pipeline(name)

    def add(phase: str) -> None:
        @made.phase(name=phase)
        def handler(job: Any) -> str:
            return phase

    for phase in phases:
        add(phase)
    return made


def completed(pipeline: Pipeline, payload: object) -> Any:
    """Run one task of a pipeline to its end and return its result."""
    with Rehearsal() as rehearsal:
        task = rehearsal.run_until(rehearsal.add(pipeline, payload))
        assert task.status is Status.COMPLETED, task.error
        return task.result


# ── README.md ──


@pytest.fixture
def readme_phases(names: Names) -> Iterator[None]:
    sent: list[int] = []
    names |= {
        "videos": pipeline("videos", "script", "render"),
        "split": lambda film: [SimpleNamespace(number=1), SimpleNamespace(number=2)],
        "send": lambda part: sent.append(part.number),
    }
    yield
    with Rehearsal() as rehearsal:
        task = rehearsal.add(names["videos"], {"topic": "tides", "scheduled_time": "2026-12-24T18:00:00Z"})
        rehearsal.forward("1d")
        rehearsal.run_until(task, "image")
        rehearsal.queue.signal(task.task_id, "images.ready", ["a.png"])
        assert rehearsal.run_until(task).status is Status.COMPLETED
    assert sent == [1, 2]


# ── docs/how-to ──


@pytest.fixture
def embedding(names: Names) -> Iterator[None]:
    from pydantic import BaseModel

    class Post(BaseModel):
        text: str

    def encode(texts: list[str]) -> list[list[int] | None]:
        return [[len(text)] if text else None for text in texts]

    names |= {"posts": Pipeline("posts"), "Post": Post, "model": SimpleNamespace(encode=encode)}
    yield
    with Rehearsal() as rehearsal:
        good, empty = (rehearsal.add(names["posts"], {"text": text}) for text in ("tides", ""))
        rehearsal.run()
        assert rehearsal.get(good).result == [5]
        assert rehearsal.get(empty).error_class == "permanent"


@pytest.fixture
def news(names: Names) -> Iterator[None]:
    articles = {
        "seen": SimpleNamespace(seen_before=True),
        "english": SimpleNamespace(seen_before=False, language="en", text="tides"),
        "korean": SimpleNamespace(seen_before=False, language="ko", text="조석"),
    }
    names |= {"news": Pipeline("news"), "load": articles.__getitem__}
    yield
    ran: list[str] = []
    names["news"].phase(name="translate")(lambda job, read: ran.append("translate"))
    names["news"].phase(name="publish")(lambda job, read: ran.append("publish"))
    for url in articles:
        completed(names["news"], {"url": url})
    assert ran == ["publish", "translate", "publish"]


@pytest.fixture
def failed_posts(names: Names, queue: Queue) -> Iterator[None]:
    posts = Pipeline("posts")

    @posts.phase(retry=0)
    def publish(post: Any) -> None:
        raise ConnectionError

    for user in ("u7", "u7", "u8"):
        queue.add(posts, {}, user_id=user)
    yield
    assert [task.status for task in queue.find().tasks] == ["waiting", "cancelled", "cancelled"]


@pytest.fixture
def albums(names: Names) -> Iterator[None]:
    names |= {"albums": Pipeline("albums"), "tracks": pipeline("tracks", "mix")}
    yield
    with Rehearsal(names["albums"], names["tracks"]) as rehearsal:
        task = rehearsal.add(names["albums"], {"tracks": [1, 2, 3]})
        assert rehearsal.run_until(task).status is Status.COMPLETED


@pytest.fixture
def albums_again(names: Names) -> None:
    names["albums"] = Pipeline("albums")


@pytest.fixture
def reports_published(names: Names, queue: Queue) -> None:
    queue.serve(names["reports"]).publish()


@pytest.fixture
def letters(names: Names, project: None) -> Iterator[None]:
    from pydantic import BaseModel

    class Letter(BaseModel):
        to: str

    names |= {"letters": pipeline("letters", "write"), "Letter": Letter}
    yield

    async def visit() -> httpx.Response:
        app = names["app"]
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://letters") as client,
        ):
            return await client.post("/letters", json={"to": "Ann"})

    answer = asyncio.run(visit())
    assert answer.status_code == 202
    assert names["queue"].get(answer.json()["task_id"]).pipeline == "letters"


@pytest.fixture
def orders_of_fastapi(names: Names) -> Iterator[None]:
    names["Base"].metadata.create_all(names["engine"])
    yield

    async def order() -> httpx.Response:
        transport = httpx.ASGITransport(names["shop"])
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            return await client.post("/orders", params={"item": "cup"})

    answer = asyncio.run(order())
    assert answer.status_code == 202
    Worker(names["queue"], [names["invoices"]], until_idle=True).run()
    assert names["queue"].get(answer.json()["task_id"]).result == "invoice for cup"
    names["engine"].dispose()


@pytest.fixture
def mongo_client(names: Names, mongo_url: str) -> Iterator[None]:
    from pymongo import MongoClient

    with MongoClient[dict[str, Any]](mongo_url) as client:
        names["client"] = client
        yield
        client.drop_database("studio")


@pytest.fixture
def mongo_transaction(names: Names, mongo_replica_set_url: str) -> Iterator[None]:
    from pymongo import MongoClient

    with MongoClient[dict[str, Any]](mongo_replica_set_url) as client:
        queue = Queue(mongo_replica_set_url)
        names |= {"client": client, "queue": queue, "videos": pipeline("videos", "script"), "order": {"_id": 7}}
        queue.publish(names["videos"])
        client.studio.create_collection("orders")
        yield
        assert [task.payload for task in queue.find().tasks] == [{"order": 7}]
        client.drop_database("studio")


@pytest.fixture
def pulled_posts(names: Names, queue: Queue) -> Iterator[None]:
    def send(post: Any, key: str = "") -> str:
        if post == "unreachable":
            raise ConnectionError
        return f"sent {post}"

    class StopAfterOneRound(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            self.set()
            return True

    queue.publish(pipeline("posts", "publish"))
    added = [queue.add("posts", payload) for payload in ("hello", "unreachable")]
    names |= {"send": send, "stopping": StopAfterOneRound()}
    yield
    good, bad = (queue.get(task.task_id) for task in added)
    assert good.result == "sent hello"
    assert (bad.status, bad.retry_count) == (Status.WAITING, 1)


@pytest.fixture
def claimed_video(names: Names, queue: Queue) -> Iterator[None]:
    queue.publish(pipeline("videos", "encode"))
    queue.add("videos", "talk.mp4", task_id="42")
    names["encode"] = lambda task_id: f"{task_id}.m3u8"
    yield
    assert queue.get("42").result == "42.m3u8"


@pytest.fixture
def sqs_queues(project: None, sqs_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queues that the page about SQS names, in the test server."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", sqs_endpoint)
    client = boto3.client("sqs")
    client.create_queue(QueueName="dead")
    policy = {"deadLetterTargetArn": "arn:aws:sqs:eu-central-1:123456789012:dead", "maxReceiveCount": 10}
    for name in ("videos", "orders", "uploads", "thumbnails", "unreadable"):
        client.create_queue(QueueName=name, Attributes={"RedrivePolicy": json.dumps(policy)})


@pytest.fixture
def local_sqs(sqs_queues: None, sqs_endpoint: str, names: Names) -> Iterator[None]:
    """The test server at the endpoint that the page names."""
    yield
    assert "got local.mp4" in [task.result for task in names["local"].find().tasks]


@pytest.fixture
def pulled_once(names: Names, queue: Queue) -> Iterator[None]:
    sent: list[str] = []

    def send(address: str, key: str) -> str:
        sent.append(key)
        return "receipt"

    names["send"] = send
    yield

    def settled(**remembered: object) -> Leased:
        queue.add("posts", "ann@example.com", priority=-1)
        (lease,) = queue.claim("posts", "publish", limit=1)
        for name, value in remembered.items():
            lease.remember(name, value)
        names["send_once"](lease)
        return lease

    assert settled().task.status is Status.COMPLETED
    assert len(sent) == 1
    assert settled(intent={"to": "ann"}).task.status is Status.FAILED
    assert settled(intent={"to": "ann"}, sent="receipt").task.status is Status.COMPLETED
    assert len(sent) == 1


@pytest.fixture
def posts(names: Names, queue: Queue) -> None:
    names["posts"] = Pipeline("posts")


@pytest.fixture
def rate_limited_api(names: Names) -> Iterator[None]:
    names |= {
        "posts": Pipeline("posts"),
        "api": SimpleNamespace(get=lambda url: SimpleNamespace(status_code=int(url), text="")),
    }
    yield
    with Rehearsal() as rehearsal:
        for code in ("429", "503"):
            task = rehearsal.add(names["posts"], {"url": code})
            rehearsal.run()
            assert rehearsal.get(task).error_class == "limit"


@pytest.fixture
def transcriber(names: Names, folder: Path) -> Iterator[None]:
    yield
    (folder / "main.py").write_text("import json, sys; print('50%'); print(json.dumps(sys.argv[1:]))")
    arguments = completed(names["films"], {"url": "a.mp4", "engine": "small", "force": True})
    assert arguments == ["a.mp4", "--engine", "small", "--force"]


@pytest.fixture
def orders_in_sqlite(names: Names, queue: Queue, sqlite_url: str) -> Iterator[None]:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

    class Base(DeclarativeBase): ...

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)
        total: Mapped[int]

    names |= {"engine": create_engine(sqlite_url), "Order": Order, "invoices": pipeline("invoices", "write")}
    queue.publish(names["invoices"])
    Base.metadata.create_all(names["engine"])
    yield
    assert [task.payload for task in queue.find().tasks] == [{"order": 1}]
    names["engine"].dispose()


@pytest.fixture
def film_steps(names: Names) -> Iterator[None]:
    names |= {
        "videos": Pipeline("videos"),
        "fetch": lambda url: f"{url}.raw",
        "make_cut": lambda source, length: f"{source}.{length}s",
        "upload": lambda cut: f"{cut} is online",
    }
    yield
    assert completed(names["videos"], {"url": "tides"}) == "tides.raw.60s is online"


@pytest.fixture
def task_with_output(names: Names, queue: Queue, monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> None:
    films = Pipeline("films")

    @films.phase
    def video(job: Any) -> None:
        print("segment 1")

    names["task"] = queue.add(films, {}, task_id="ID")
    Worker(queue, [films], until_idle=True).run()
    monkeypatch.setenv("ONEROW_STORE", sqlite_url)


STUDIO = """
from onerow import Pipeline

videos = Pipeline("videos")


@videos.phase
def script(job):
    return job["topic"].title()


videos.wait_for("image", signal="images.ready")


@videos.phase
def video(job, ctx):
    return ctx.step("download", len, job["topic"])
"""


@pytest.fixture
def studio(names: Names, folder: Path) -> Iterator[None]:
    (folder / "studio.py").write_text(STUDIO, encoding="utf-8")
    yield
    with Rehearsal() as rehearsal:
        names["test_a_video_waits_for_its_image"](rehearsal)


@pytest.fixture
def rehearsed_studio(names: Names) -> Iterator[None]:
    with Rehearsal(names["videos"]) as rehearsal:
        names["rehearsal"] = rehearsal
        yield
        task = rehearsal.add(names["videos"], {"topic": "tides"})
        rehearsal.run_until(task, "image")
        rehearsal.queue.signal(task.task_id, "images.ready", [])
        rehearsal.run_until_idle()
        done = rehearsal.get(task)
        assert done.status is Status.COMPLETED
        assert {entry.error_class for entry in done.history} >= {"network", "crash"}


@pytest.fixture
def contracts(names: Names) -> Iterator[None]:
    names |= {
        "contracts": Pipeline("contracts"),
        "write_draft": lambda job: "draft",
        "send_for_approval": lambda draft: None,
        "publish": lambda draft, verdict: f"{draft}, approved by {verdict['by']}",
    }
    yield
    with Rehearsal() as rehearsal:
        task = rehearsal.add(names["contracts"], {})
        rehearsal.run()
        rehearsal.queue.signal(task.task_id, "approved", {"by": "ann"})
        assert rehearsal.run_until(task).result == "draft, approved by ann"


# ── docs ──


@pytest.fixture
def videos(names: Names) -> Iterator[None]:
    names["videos"] = pipeline("videos", "video")
    yield
    assert completed(names["videos"], {}) is None


@pytest.fixture
def failed_tasks(queue: Queue, monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> list[str]:
    posts = Pipeline("posts")

    @posts.phase(retry=0)
    def publish(post: Any) -> None:
        raise Permanent("no") if post == "bad" else ConnectionError

    added = [queue.add(posts, payload) for payload in ("good", "bad")]
    Worker(queue, [posts], until_idle=True).run()
    monkeypatch.setenv("ONEROW_STORE", sqlite_url)
    return [task.task_id for task in added]


@pytest.fixture
def retried_task(queue: Queue, failed_tasks: list[str]) -> Iterator[None]:
    yield
    assert [queue.get(task_id).status for task_id in failed_tasks] == ["waiting", "failed"]


APP = """
from onerow import Pipeline, Queue

videos = Pipeline("videos")


@videos.phase
def script(job): ...


queue = Queue().serve(videos)
"""


@pytest.fixture
def an_app(folder: Path) -> None:
    (folder / "app.py").write_text(APP, encoding="utf-8")


@pytest.fixture
def operated(folder: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str) -> None:
    """A folder with an app and a store with one waiting task; PostgreSQL has tables."""
    (folder / "app.py").write_text(APP, encoding="utf-8")
    (folder / "onerow.toml").write_text('store = "sqlite:///tasks.db"\n', encoding="utf-8")
    queue = Queue(f"sqlite:///{folder}/tasks.db")
    queue.add(pipeline("videos", "script"), {})
    queue.close()


@pytest.fixture
def operated_again(folder: Path) -> None:
    """Another store: the first one was moved."""
    (folder / "onerow.toml").write_text('store = "sqlite:///new.db"\n', encoding="utf-8")


@pytest.fixture
def moved_store(folder: Path, postgres_tables: Queue, postgres_url: str) -> None:
    """A file to move to PostgreSQL, which must be empty: check and remove what the blocks before it added."""
    assert [task.payload for task in postgres_tables.find().tasks] == [{"id": number} for number in (9, 8, 7)]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA onerow CASCADE")
    queue = Queue(f"sqlite:///{folder}/studio.db")
    queue.add(pipeline("videos", "script"), {})
    queue.close()


@pytest.fixture
def postgres_tables(names: Names, postgres_url: str) -> Queue:
    queue: Queue = Queue(postgres_url)
    names |= {"queue": queue, "orders": pipeline("orders", "pack")}
    queue.publish(names["orders"], pipeline("videos", "script"))
    return queue


@pytest.fixture
def postgres_role(postgres_tables: Queue, postgres_url: str) -> Iterator[None]:
    yield
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP OWNED BY onerow_worker")
        connection.execute("DROP ROLE onerow_worker")


@pytest.fixture
def posts_in_postgres(postgres_tables: Queue, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables of the pages on tenants and attached tables."""
    monkeypatch.setenv("ONEROW_STORE", postgres_url)
    postgres_tables.publish(pipeline("tagging", "tag"))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE public.accounts (id uuid PRIMARY KEY, workspace_id integer);"
            "CREATE TABLE public.posts (id uuid PRIMARY KEY);"
            "CREATE FUNCTION public.is_workspace_member(integer) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT true'"
        )


@pytest.fixture
def tagger_in_postgres(posts_in_postgres: None, postgres_url: str) -> Iterator[None]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE tagger_members; CREATE ROLE tagger_service LOGIN")
        connection.execute("GRANT SELECT ON public.accounts TO tagger_members")
        yield
        connection.execute("DROP OWNED BY tagger_members, tagger_service")
        connection.execute("DROP ROLE tagger_members, tagger_service")


@pytest.fixture
def tasks_deleted_at_their_end(names: Names) -> Iterator[None]:
    worker = Worker(names["queue"], [names["clicks"]], interval=0.05, grace="1s")
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert worker.ready.wait(900)
    yield
    worker.stop(hurry=True)
    thread.join()
    assert (names["done"].status, names["done"].results) == ("completed", {})


@pytest.fixture
def orders_in_postgres(postgres_tables: Queue, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (id int)")


@pytest.fixture
def django_on_postgres(postgres_url: str) -> Iterator[None]:
    with django_at(postgres_url):
        yield


@pytest.fixture
def some_videos(folder: Path) -> None:
    """A project whose store has the definition of a pipeline."""
    (folder / "onerow.toml").write_text('store = "sqlite:///tasks.db"\n', encoding="utf-8")
    queue = Queue(f"sqlite:///{folder}/tasks.db")
    queue.publish(pipeline("videos", "script"))
    queue.close()


@pytest.fixture
def published_videos(queue: Queue) -> None:
    queue.publish(pipeline("videos", "script"))


@pytest.fixture
def videos_with_script(names: Names) -> None:
    names["videos"] = pipeline("videos", "script")


@pytest.fixture
def running_videos(queue: Queue) -> Iterator[None]:
    videos = pipeline("videos", "video")
    queue.publish(videos)
    worker = Worker(queue, [videos], interval=0.2)
    thread = threading.Thread(target=worker.run)
    thread.start()
    yield
    worker.stop()
    thread.join()


# ── docs/how-to/scaling-*.md ──


@pytest.fixture
def scaled_app(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    """A store with five waiting tasks, which commands find by ONEROW_STORE."""
    url = f"sqlite:///{folder / 'scaled.db'}"
    monkeypatch.setenv("ONEROW_STORE", url)
    queue = Queue(url)
    clips = pipeline("clips", "video")
    queue.publish(clips)
    queue.add_many(clips, [{"n": n} for n in range(5)])
    yield queue
    queue.close()


@pytest.fixture
def scaled_on_aws(scaled_app: Queue, sqs_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An Auto Scaling group and an ECS service without workers."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", sqs_endpoint)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    groups, services = boto3.client("autoscaling"), boto3.client("ecs")
    groups.create_launch_configuration(LaunchConfigurationName="lc", ImageId="ami-12c6146b", InstanceType="t3.micro")
    groups.create_auto_scaling_group(
        AutoScalingGroupName="encoders", LaunchConfigurationName="lc", MinSize=0, MaxSize=9,
        AvailabilityZones=["eu-central-1a"],
    )  # fmt: skip
    services.create_cluster(clusterName="media")
    services.register_task_definition(family="w", containerDefinitions=[{"name": "w", "image": "w", "memory": 64}])
    services.create_service(cluster="media", serviceName="encoders", taskDefinition="w", desiredCount=0)
    groups.close()
    services.close()


@pytest.fixture
def queue_depth(names: Names, scaled_app: Queue) -> Iterator[None]:
    """The handler of the page, which is called at the end."""
    names["queue"] = scaled_app
    yield
    answer = names["lambda_handler"]({}, None)
    assert len(answer) == 4
    assert answer["video_scale_result"]["video_new_desired"] == 2


# ── docs/how-to/sql-views.md, adopt.md ──


@pytest.fixture
def tagging_in_postgres(postgres_url: str) -> None:
    _publish(postgres_url, pipeline("tagging", "tag"))


@pytest.fixture
def jobs_in_postgres(postgres_url: str) -> None:
    _publish(postgres_url, pipeline("jobs", "run"))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for statement in old_tables.JOBS.replace("{rows}", "20").split(";\n"):
            if statement.strip():
                connection.execute(statement)


@pytest.fixture
def task_queue_in_sqlite(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "studio.db")) as connection, connection:
        connection.execute(old_tables.TASK_QUEUE)
        connection.execute(
            "INSERT INTO task_queue (task_id, type, status, user_id) VALUES ('영상', 'script', 'waiting', 'u')"
        )


def _publish(url: str, made: Pipeline) -> None:
    queue = Queue(url)
    queue.publish(made)
    queue.close()
