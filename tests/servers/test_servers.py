"""The test servers: each starts, answers a request, and restarts after SIGKILL."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import psutil
import psycopg
import pymongo
import pytest
from pymongo import WriteConcern

from tests.engine.kit import until
from tests.servers.mongo import MongoServer
from tests.servers.postgres import PostgresServer


def test_postgres_answers_in_a_fresh_database(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        assert _one(connection, "SELECT version()").startswith("PostgreSQL ")
        assert _one(connection, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
        assert _one(connection, "SHOW fsync") == "on"


def test_postgres_15_answers(postgres_15_url: str) -> None:
    with psycopg.connect(postgres_15_url) as connection:
        assert _one(connection, "SELECT version()").startswith("PostgreSQL 15.")


@pytest.mark.faults
@pytest.mark.parametrize(
    "how", ["kill", *(pytest.param(how, marks=pytest.mark.slow) for how in ("stop", "stop immediate"))]
)
def test_postgres_keeps_committed_rows_after_a_restart(own_postgres: PostgresServer, how: str) -> None:
    url = own_postgres.fresh_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS n")

    match how:
        case "stop":
            own_postgres.stop()
        case "stop immediate":
            own_postgres.stop("immediate")
        case _:
            own_postgres.kill()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)

    own_postgres.start()
    with psycopg.connect(url) as connection:
        assert _one(connection, "SELECT n FROM kept") == 1


def test_pgbouncer_does_not_keep_the_session_between_transactions(pgbouncer_url: str) -> None:
    with (
        psycopg.connect(pgbouncer_url, autocommit=True, prepare_threshold=None) as one,
        psycopg.connect(pgbouncer_url, autocommit=True, prepare_threshold=None) as two,
    ):
        # PgBouncer gives both clients the same server connection, one after the other.
        assert _one(one, "SELECT pg_backend_pid()") == _one(two, "SELECT pg_backend_pid()")


def test_mongo_finds_an_inserted_document(mongo_url: str) -> None:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        database = client.get_default_database(write_concern=WriteConcern(j=True))
        assert database.list_collection_names() == []
        database.tasks.insert_one({"_id": 1, "status": "waiting"})
        assert database.tasks.find_one({"status": "waiting"}) == {"_id": 1, "status": "waiting"}


@pytest.mark.faults
def test_mongo_keeps_journaled_writes_after_a_kill(own_mongo: MongoServer) -> None:
    url = own_mongo.fresh_database()
    with pymongo.MongoClient[dict[str, Any]](url) as client:
        tasks = client.get_default_database(write_concern=WriteConcern(j=True)).tasks
        for n in range(100):
            tasks.insert_one({"_id": n})

    own_mongo.kill()
    own_mongo.start()
    with pymongo.MongoClient[dict[str, Any]](url) as client:
        assert client.get_default_database().tasks.count_documents({}) == 100


def test_a_queue_returns_a_sent_message(sqs_endpoint: str) -> None:
    sqs = boto3.client("sqs", endpoint_url=sqs_endpoint)
    queue = sqs.create_queue(QueueName="inbox")["QueueUrl"]
    sqs.send_message(QueueUrl=queue, MessageBody="hello")
    assert [message["Body"] for message in sqs.receive_message(QueueUrl=queue)["Messages"]] == ["hello"]


def test_a_bucket_returns_a_stored_object(sqs_endpoint: str) -> None:
    s3 = boto3.client("s3", endpoint_url=sqs_endpoint)
    s3.create_bucket(Bucket="raw", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    s3.put_object(Bucket="raw", Key="a", Body=b"hello")
    assert s3.get_object(Bucket="raw", Key="a")["Body"].read() == b"hello"


def test_each_test_finds_sqs_empty(sqs_endpoint: str) -> None:
    assert "QueueUrls" not in boto3.client("sqs", endpoint_url=sqs_endpoint).list_queues()


def test_sqlite_url_names_a_file_that_does_not_exist(sqlite_url: str) -> None:
    path = Path(urlsplit(sqlite_url).path)
    assert path.is_absolute()
    assert path.parent.is_dir()
    assert not path.exists()


@pytest.mark.faults
def test_a_server_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal, sys, time; from pathlib import Path; from tests.servers.process import Process\n"
            "signal.signal(signal.SIGQUIT, signal.SIG_IGN)\n"
            "server = Process(['sleep', '600'], log=Path(sys.argv[1]) / 'log')\n"
            "print(server.pid, flush=True); time.sleep(600)",
            tmp_path,
        ],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    server = psutil.Process(int(owner.stdout.readline()))

    owner.kill()
    owner.wait()
    owner.stdout.close()
    server.wait(timeout=200)  # before its own end


@pytest.mark.faults
def test_a_shared_server_ends_when_its_run_is_killed() -> None:
    run = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, time; from tests.servers.shared import begin_run, shared\n"
            "begin_run(); first = shared('postgres'); assert shared('postgres') == first\n"
            "print(first, os.environ['ONEROW_TEST_RUN'], flush=True); time.sleep(600)",
        ],
        cwd=Path(__file__).parents[2],
        env={name: value for name, value in os.environ.items() if name != "ONEROW_TEST_POSTGRES_URL"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    url, folder = run.stdout.readline().split()
    psycopg.connect(url).close()

    run.kill()
    run.wait()
    run.stdout.close()
    until(lambda: not Path(folder).exists(), "the end of the server")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


def _one(connection: psycopg.Connection[Any], query: Any) -> Any:
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]
