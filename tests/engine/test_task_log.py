"""The task log: large output, order, bounds, secrets, files, and following it across attempts and workers."""

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pymongo
import pytest
from click.testing import CliRunner
from psycopg import sql

from onerow import Context, LogGap, Pipeline, Retry, Status
from onerow.cli.main import main
from onerow.engine.output.terminal import neutral
from onerow.engine.queue import task_log
from onerow.engine.queue.queue import Queue
from onerow.engine.queue.task_log import Wanted
from onerow.ports import LogLine
from onerow.wiring import Queue as QueueAt
from tests.conformance.stores import ENTRIES, Entry
from tests.engine.conftest import PATIENCE, ended, until, working
from tests.engine.test_commands import entry, lines, run, script

__all__ = ["entry"]  # two stores are enough: the conformance suite tests what each one keeps
on_every_store = pytest.mark.parametrize(
    "entry", [ENTRIES[name] for name in ("memory", "sqlite", "postgres", "mongo")], ids=lambda entry: entry.name
)
on_every_server = pytest.mark.parametrize(
    "entry", [ENTRIES[name] for name in ("sqlite", "postgres", "mongo")], ids=lambda entry: entry.name
)
on_every_store_or_slowly = pytest.mark.parametrize(
    "entry",
    [
        *(ENTRIES[name] for name in ("memory", "sqlite", "postgres")),
        pytest.param(ENTRIES["mongo"], marks=pytest.mark.slow),  # slow, because each line is a document
    ],
    ids=lambda entry: entry.name,
)
QUICK = Retry(3, wait="10ms", jitter=0)


@pytest.fixture
def url(entry: Entry, request: pytest.FixtureRequest) -> str:
    """The URL of an empty store, for separate processes."""
    address = entry.fresh(request)
    return f"sqlite:///{address}" if entry.name == "sqlite" else address


def texts(queue: Queue, task_id: str, **wanted: Any) -> list[str]:
    return [line.text for line in task_log.read(queue, task_id, Wanted(**wanted)) if isinstance(line, LogLine)]


# ── large output ──────────────────────────────────────────────────────────────────────────────────────────────────────


@on_every_store
def test_the_last_of_a_hundred_thousand_lines_are_kept_and_the_log_notes_the_loss(queue: Queue) -> None:
    films = Pipeline("films")
    films.command("flood", script("for i in range(100_000): print(f'line {i}')"))
    task = run(queue, films)
    first, *rest = task_log.read(queue, task.task_id)
    assert task.status is Status.COMPLETED
    assert isinstance(first, LogGap)
    found = [line.text for line in rest if isinstance(line, LogLine)]
    said = [text for text in found if text.startswith("line ")]
    assert said == [f"line {i}" for i in range(100_000 - len(said), 100_000)]
    assert len(said) > 9_900
    assert re.fullmatch(r"… of 100,000 lines [\d,]+ were left out.*", found[-1]) or len(found) == len(said)


def test_a_handler_with_large_output_keeps_its_last_lines_in_order(queue: Queue) -> None:
    films = Pipeline("films")

    @films.phase
    def flood(job: Any) -> None:
        for number in range(25_000):
            print(number)

    task = run(queue, films)
    numbers = [int(text) for text in lines(queue, task, "out")]
    assert numbers == sorted(numbers)
    assert numbers[-1] == 24_999
    assert len(numbers) > 9_000


@pytest.mark.parametrize("entry", [ENTRIES["sqlite"]], ids=["sqlite"])
def test_fifty_megabytes_without_a_newline_are_handled(queue: Queue) -> None:
    films = Pipeline("films")
    films.command("flood", script("import sys\nfor _ in range(50): sys.stdout.write('zz.' * 333_334)"))
    task = run(queue, films)
    kept = lines(queue, task)
    assert task.status is Status.COMPLETED
    assert 500_000 < sum(map(len, kept)) <= 1_000_000


@on_every_store
def test_binary_output_is_handled(queue: Queue) -> None:
    films = Pipeline("films")
    films.command("spew", script("import os\nos.write(1, bytes(range(256)) * 400 + b'\\nlast\\n')"))
    task = run(queue, films)
    assert (task.status, lines(queue, task)[-1]) == (Status.COMPLETED, "last")


@on_every_store_or_slowly
def test_sixteen_concurrent_writers_stay_within_their_bounds_and_in_order(queue: Queue) -> None:
    films = Pipeline("films")
    count = 12_000
    films.command("talk", ["sh", "-c", 'seq -f "$1 %.0f" 1 "$2"', "sh", "{}", str(count)])
    tasks = queue.add_many(films, range(16))
    with working(queue, films, concurrency=16):
        for number, task in enumerate(tasks):
            ended(queue, task.task_id, seconds=5 * PATIENCE)  # 192,000 lines, which the embedded MongoDB takes slowly
            found = list(task_log.read(queue, task.task_id))
            said = [line.text for line in found if isinstance(line, LogLine) and line.text.startswith(f"{number} ")]
            assert said == [f"{number} {i}" for i in range(count - len(said) + 1, count + 1)]
            assert isinstance(found[0], LogGap) or len(found) > len(said), "it says that others went"
            assert 9_900 < len(said) <= 10_000


@on_every_store
def test_sixteen_concurrent_writers_each_keep_their_lines_in_order(queue: Queue) -> None:
    films = Pipeline("films")
    films.command("talk", ["sh", "-c", 'i=0; while [ $i -lt 700 ]; do echo "$1 $i"; i=$((i+1)); done', "sh", "{}"])
    tasks = queue.add_many(films, range(16))
    with working(queue, films):
        for number, task in enumerate(tasks):
            assert lines(queue, ended(queue, task.task_id)) == [f"{number} {i}" for i in range(700)]


@on_every_store
def test_a_task_that_has_ended_has_its_whole_log_in_the_store(queue: Queue) -> None:
    films = Pipeline("films")

    @films.phase
    async def talk(job: int) -> None:
        for number in range(job):
            print(number)

    with working(queue, films):
        for count in (1, 300, 3, 2000):
            task = queue.add(films, count)
            assert len(lines(queue, ended(queue, task.task_id))) == count


def test_a_failure_leaves_its_traceback_in_the_log(queue: Queue) -> None:
    films = Pipeline("films")

    @films.phase(retry=0)
    def cut(job: Any) -> None:
        raise ValueError("scissors are gone")

    task = run(queue, films)
    trace = lines(queue, task, "error")
    assert (trace[0], trace[-1]) == ("Traceback (most recent call last):", "ValueError: scissors are gone")


# ── reading and following ─────────────────────────────────────────────────────────────────────────────────────────


def test_lines_can_be_filtered(queue: Queue) -> None:
    films = Pipeline("films")

    @films.phase(retry=QUICK)
    def cut(job: Any, ctx: Context) -> None:
        print(f"out {ctx.attempt}")
        print(f"err {ctx.attempt}", file=sys.stderr)
        ctx.log(f"debug {ctx.attempt}", level="debug")
        if ctx.attempt == 1:
            raise ConnectionError("later")

    films.command("mix", ["echo", "mixed"])
    task_id = run(queue, films).task_id
    assert texts(queue, task_id, attempt=2) == ["out 2", "err 2", "debug 2"]
    assert texts(queue, task_id, phase="mix") == ["mixed"]
    assert texts(queue, task_id, level="err") == ["err 1", "err 2"]
    assert texts(queue, task_id, level="error", grep=re.compile("^Conn.*later")) == ["ConnectionError: later"]
    assert texts(queue, task_id, grep=re.compile(r"^(out|debug) 1")) == ["out 1", "debug 1"]
    last = [
        line.text for line in task_log.read(queue, task_id, Wanted(level="out"), tail=2) if isinstance(line, LogLine)
    ]
    assert last == ["out 2", "mixed"]


WORKER = """
import sys
from onerow import Pipeline, Queue, Retry, Worker
films = Pipeline("films")
films.command("cut", ["sh", "-c", {code!r}], retry=Retry(3, wait="10ms"), lease="2s")
Worker(Queue({url!r}), [films], interval=0.2).run()
"""
ATTEMPTS = 'echo "$ONEROW_ATTEMPT begins"; case $ONEROW_ATTEMPT in 1) sleep 600;; 2) exit 75;; esac; echo done'


@pytest.mark.faults
@on_every_server
def test_a_log_is_followed_across_a_dead_worker_and_a_retry(url: str) -> None:
    films = Pipeline("films")
    films.command("cut", ["true"])
    queue = QueueAt(url)
    queue.publish(films)
    task = queue.add(films, max_retries=3)
    argv = [sys.executable, "-c", WORKER.format(code=ATTEMPTS, url=url)]
    workers: list[subprocess.Popen[Any]] = [subprocess.Popen(argv)]
    command = [sys.executable, "-m", "onerow", "logs", task.task_id, "-f", "--store", url]
    following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: lines(queue, task) == ["1 begins"])
        os.kill(workers[0].pid, signal.SIGKILL)
        workers[0].wait()
        workers.append(subprocess.Popen(argv))
        out, _ = following.communicate(timeout=900)
    finally:
        for process in [*workers, following]:
            process.kill()
            process.wait()
    shown = [line.split("  ", 1)[1] for line in out.splitlines()]
    assert shown == ["1 begins", "2 begins", "3 begins", "done"]
    queue.close()


def test_a_queue_follows_the_log_of_a_task_until_it_has_ended(queue: Queue) -> None:
    films, seen = Pipeline("films"), threading.Event()

    @films.phase
    def cut(job: object) -> None:
        print("begins")
        assert seen.wait(PATIENCE)
        print("done")

    task = queue.add(films)
    with working(queue, films):
        following = queue.follow_logs(task.task_id)
        first = next(following)
        assert isinstance(first, LogLine)
        seen.set()
        said = [first.text, *(line.text for line in following if isinstance(line, LogLine))]
    assert said == ["begins", "done"]
    assert queue.get(task.task_id).ended
    assert [line.text for line in queue.follow_logs(task.task_id, tail=1) if isinstance(line, LogLine)] == ["done"]


@pytest.mark.parametrize(
    "text, shown",
    [
        ("plain 한글 🎬", "plain 한글 🎬"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\link", "xlink"),
        ("\x1b[2J\x1b[Hcleared\x1bc", "cleared"),
        ("a\tb\nc\bd\x7f", "a b c\\x08d\\x7f"),
        ("safe\u202eevil", "safe\\u202eevil"),
        ("a\u200e\u200f\u2066\u2069b", "a\\u200e\\u200f\\u2066\\u2069b"),
        ("half \ud83c", "half \\ud83c"),
        ("\x9b31mred", "red"),
    ],
)
def test_a_displayed_line_contains_no_terminal_control_characters(text: str, shown: str) -> None:
    assert neutral(text) == shown


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_attempt_has_a_log_file_that_is_removed_with_its_task(sqlite_url: str, tmp_path: Path) -> None:
    films = Pipeline("films")
    films.command("cut", ["sh", "-c", 'echo "attempt $ONEROW_ATTEMPT"; exit $((2 - ONEROW_ATTEMPT))'], retry=QUICK)
    queue = QueueAt(sqlite_url, log_files=tmp_path / "logs")
    before = os.umask(0o077)
    try:
        task = run(queue, films, task_id="..한글:x")
    finally:
        os.umask(before)
    files = sorted((tmp_path / "logs").iterdir(), key=lambda path: path.stat().st_ctime_ns)
    assert all(re.fullmatch(r"job-[\w.%~-]+-\d{8}-\d{6}(-\d)?\.log", path.name) for path in files)
    assert [oct(path.stat().st_mode & 0o777) for path in files] == ["0o640", "0o640"]
    assert [path.read_text().split()[-2:] for path in files] == [["attempt", "1"], ["attempt", "2"]]
    other = run(queue, films)
    assert queue.purge(older_than=0, limit=1) == 1
    assert not any(path.exists() for path in files)
    assert [path.name for path in (tmp_path / "logs").iterdir() if other.task_id in path.name]
    assert queue.find().tasks[0].task_id == other.task_id != task.task_id
    queue.close()


def test_a_command_knows_the_path_of_its_log_file(sqlite_url: str, tmp_path: Path) -> None:
    films = Pipeline("films")
    script = 'echo "$ONEROW_LOG_FILE"; echo "$MY_LOG"; test -f "$MY_LOG" && exit $((2 - ONEROW_ATTEMPT))'
    films.command("cut", ["sh", "-c", script], set_env={"MY_LOG": "{ctx.log_file?}"}, retry=QUICK)
    queue = QueueAt(sqlite_url, log_files=tmp_path / "logs")
    task = run(queue, films)
    files = sorted(str(path) for path in (tmp_path / "logs").iterdir())
    assert len(files) == 2
    assert lines(queue, task) == [
        each for file in sorted(files, key=lambda path: os.stat(path).st_ctime_ns) for each in (file, file)
    ]
    for file in files:
        assert Path(file).read_text().count(file) == 2
    queue.close()


def test_without_log_files_a_command_gets_no_path(sqlite_url: str) -> None:
    films = Pipeline("films")
    films.command(
        "cut", ["sh", "-c", 'echo "<$MY_LOG>${{ONEROW_LOG_FILE-none}}"'], set_env={"MY_LOG": "{ctx.log_file?}"}
    )
    queue = QueueAt(sqlite_url)
    assert lines(queue, run(queue, films)) == ["<>none"]
    queue.close()


def test_an_unwritable_folder_affects_only_the_log_files(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file, not a folder")
    films = Pipeline("films")
    films.command("cut", ["echo", "hello"])
    queue = QueueAt(sqlite_url, log_files=tmp_path / "logs")
    task = run(queue, films)
    assert (task.status, lines(queue, task)) == (Status.COMPLETED, ["hello"])
    queue.close()


# ── secrets ───────────────────────────────────────────────────────────────────────────────────────────────────────

CANARIES = {
    "CANARY_TOKEN": "canary-token-1f3a9c",
    "CANARY_PASSWORD": "canary pass/word+2b7d",
    "CANARY_API_KEY": "sk-canary3c5e7a9b1d3f5a7c",
    "CANARY_PLAIN": "canary-named-4d6f8b",
    "CANARY_SECRET": "canary-line-one-5e\ncanary-line-two-5e",
}
BY_PATTERN = [
    "ghp_canary6f1a3c5e7a9b1d3f5a7c9e1b3d5f",
    "postgresql://ann:canary-7a2c@db.example/x",
    "our-own-canary-8b4d",
]


def everything_in(url: str) -> bytes:
    """Return everything that a store of any kind contains, as bytes."""
    kind, _, rest = url.partition(":///" if url.startswith("sqlite") else ":")
    if kind == "sqlite":
        with contextlib.closing(sqlite3.connect(rest)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Path(rest).read_bytes()
    if kind == "mongodb":
        client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(url)
        with client:
            database = client.get_default_database()
            rows = [list(database[name].find()) for name in database.list_collection_names()]
        return repr(rows).encode()
    server, _, schema = url.partition("?schema=")
    with psycopg.connect(server) as postgres:
        tables = postgres.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        found = [
            postgres.execute(sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier(schema, table))).fetchall()
            for (table,) in tables
        ]
    return repr(found).encode()


@on_every_server
def test_eight_canaries_appear_nowhere(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)
    shout = r"""
        import json, os, sys, time, urllib.parse
        said = [os.environ[name] for name in sorted(os.environ) if name.startswith('CANARY')] + json.load(sys.stdin)['payload']['more']
        for text in said:
            for form in (text, repr(text), json.dumps(text), urllib.parse.quote(text), 'x' * 70000 + ' ' + text):
                for piece in (form[:5], form[5:], '\n'):
                    sys.stdout.write(piece); sys.stdout.flush()
                print('failing because of', form, file=sys.stderr)
        print('::step one ok ' + json.dumps(said[0]))
        time.sleep(0.3)
        print(' '.join(said).replace('\n', ' '), file=sys.stderr)
        sys.exit(int(sys.argv[1]))
    """
    films = Pipeline("films")
    films.command("shout", [*script(shout), "{code}"], env=["CANARY_*"], stdin="payload", steps=True, retry=0)
    cards = Pipeline("cards")

    @cards.phase(retry=0)
    def fail(job: Any, ctx: Context) -> None:
        ctx.progress(1, 2, note=f"with {os.environ['CANARY_TOKEN']}")
        ctx.log(os.environ["CANARY_PASSWORD"])
        try:
            raise RuntimeError(os.environ["CANARY_TOKEN"])
        except RuntimeError as error:
            raise ValueError("\n".join([*CANARIES.values(), *BY_PATTERN])) from error

    queue = QueueAt(url, secrets=["CANARY_PLAIN"], mask=[r"our-own-[\w-]+"], log_files=tmp_path / "logs")
    seen_in_ps: list[str] = []
    with working(queue, films, cards):
        # The payload is stored unmasked, and masked only for display.
        first = queue.add(films, {"code": 3, "more": []})
        pulled = queue.add(cards)
        while not queue.get(first.task_id).ended:
            for process in psutil.Process().children(recursive=True):
                try:
                    seen_in_ps += process.cmdline()
                except psutil.Error:
                    continue
        ended(queue, first.task_id)
        ended(queue, pulled.task_id)
    monkeypatch.setenv("MORE", "x")
    for task_id in (first.task_id, pulled.task_id):
        assert "***" in str(queue.get(task_id).error)
        assert "***" in "".join(texts(queue, task_id))
    asked = [["list"], ["list", "--json"], ["failures"], ["failures", "--json"], ["watch", "--once"], ["stats"]]
    for task_id in (first.task_id, pulled.task_id):
        asked += [["logs", task_id], ["logs", task_id, "--raw"], ["logs", task_id, "--json"]]
        asked += [["show", task_id], ["show", task_id, "--json"], ["why", task_id]]
    for name in CANARIES:  # the commands below run without the secrets, so only stored text can contain them
        monkeypatch.delenv(name)
    shown = []
    for command in asked:
        result = CliRunner().invoke(main, [*command, "--store", url])
        assert result.exit_code == 0, (command, result.output)
        shown.append(result.output)
    queue.close()
    kept = [everything_in(url), *(file.read_bytes() for file in (tmp_path / "logs").iterdir())]
    assert any(first.task_id.encode() in each for each in kept)
    for canary in (*CANARIES.values(), *BY_PATTERN):
        for part in canary.split("\n"):
            secret = re.search(r"canary[\w /+-]*\w", part)
            assert secret is not None
            word = secret[0][6:]
            assert not any(word.encode() in each for each in kept), word
            assert not any(word in each for each in (*shown, *seen_in_ps)), word


def test_a_payload_is_stored_unmasked_and_masked_for_display(sqlite_url: str) -> None:
    films = Pipeline("films", title="{url}")
    films.phase(name="cut")(lambda job: None)
    queue = QueueAt(sqlite_url)
    payload = {"url": "https://ann:s3cr3t-word@x/", "password": "s3cr3t-word", "n": 1}
    task = queue.add(films, payload)
    queue.publish(films)
    for command in (["show", task.task_id], ["show", task.task_id, "--json"], ["list"], ["list", "--json"]):
        shown = CliRunner().invoke(main, [*command, "--store", sqlite_url])
        assert (shown.exit_code, "https://ann:***@x/" in shown.output, "s3cr3t" in shown.output) == (0, True, False)
    assert queue.get(task.task_id).payload == payload
    queue.close()
