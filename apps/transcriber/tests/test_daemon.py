"""The worker daemon: its options, logs, limits, and kill -9 in every stage."""

import contextlib
import os
import re
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.transcriber.tests.kit import GPT, drop, ended, log_of, receive, recording, until, work, works
from apps.transcriber.tests.model_server import ModelServer
from onerow import BadInput, Queue, Worker
from tests.faults.kit import a_small_disk
from transcriber import add_job, open_queue
from transcriber.engines import check_engine
from transcriber.opening import pipeline_of
from transcriber.problems import Problem
from transcriber.settings import Settings
from transcriber.view import make_view


@pytest.mark.contract("Worker daemon: `--concurrency` (2), `--interval` (2 s).")
def test_the_daemon_has_the_seed_s_options_and_defaults(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from transcriber.cli import main

    ran: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, argv: ran.append(argv))
    before = os.umask(0)
    try:
        for options in ([], ["--concurrency", "3", "--interval", "0.5", "--until-idle"]):
            result = CliRunner().invoke(main, ["--home", str(home), "worker", *options])
            assert result.exit_code == 0, result.output
    finally:
        os.umask(before)
    assert [argv[4:] for argv in ran] == [
        ["transcriber.app", "--concurrency", "2", "--interval", "2s"],
        ["transcriber.app", "--concurrency", "3", "--interval", "0.5s", "--until-idle"],
    ]
    assert Settings.of_environment().interval == "0.5s"
    assert (home / "transcriber.db").stat().st_mode & 0o777 == 0o640
    open_queue().close()


WRONG = {
    "TRANSCRIBER_ENGINE": ["-x", "a\nb", " "],
    "TRANSCRIBER_OPENAI_BASE_URL": ["nonsense", "ftp://host", "http://", "http://[::1"],
    "TRANSCRIBER_OPENAI_TIMEOUT": ["x", "0"],
    "TRANSCRIBER_OPENAI_MAX_FILE": ["x"],
    "TRANSCRIBER_CHUNK_SECONDS": ["x", "nan", "0"],
    "TRANSCRIBER_PARALLEL": ["0", "1.5", "x"],
    "TRANSCRIBER_MEMORY": ["lots", "0"],
    "TRANSCRIBER_TAKEN": ["keep"],
    "TRANSCRIBER_TIMEOUT": ["abc", "0s", "-1h"],
    "TRANSCRIBER_RETRY_WAIT": ["5", "0s"],
    "TRANSCRIBER_INTERVAL": ["x", "0s"],
    "TRANSCRIBER_FFMPEG": ["/no/such/program"],
    "TRANSCRIBER_WHISPER_CPP": ["/no/such/program"],
    "TRANSCRIBER_WHISPER_CPP_MODEL": ["/no/such/file"],
}


@pytest.mark.parametrize("name, value", [(name, value) for name in WRONG for value in WRONG[name]])
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(BadInput, match=f"^{name}") as raised:
        Settings.of_environment({name: value}).check_programs()
    assert raised.value.field == name or "can't read" in str(raised.value)


def test_the_daemon_names_a_home_that_can_t_be_made_and_a_program_that_is_missing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(*options: str) -> str:
        argv = [sys.executable, "-m", "transcriber", *options, "worker", "--until-idle"]
        done = subprocess.run(argv, env=os.environ, capture_output=True, text=True)
        assert done.returncode == 64
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "TRANSCRIBER_HOME: the folder /proc/transcriber can't be made" in said("--home", "/proc/transcriber")
    monkeypatch.setenv("TRANSCRIBER_INTERVAL", "0s")  # it holds if --interval is not given
    assert "TRANSCRIBER_INTERVAL must be from 50ms" in said()
    monkeypatch.delenv("TRANSCRIBER_INTERVAL")
    monkeypatch.setenv("TRANSCRIBER_FFMPEG", "/no/such/program")
    assert "TRANSCRIBER_FFMPEG: there is no program '/no/such/program'" in said()


@pytest.mark.contract("3 retries at 5, 15, 45 s.")
def test_a_failed_job_is_retried_after_5_15_and_45_seconds(home: Path) -> None:
    settings = Settings.of_environment({"TRANSCRIBER_HOME": str(home)})
    for phase in pipeline_of(settings).plan.phases:
        assert [wait.total_seconds() for wait in phase.retry.delays(9)] == [5, 15, 45]


@pytest.fixture
def hanging(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A recording, and an ffmpeg that never ends."""
    program = tmp_path / "hanging-ffmpeg"
    program.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(600)\n")
    program.chmod(0o755)
    sound = recording(tmp_path / "t.wav", speech=(0.5,))
    monkeypatch.setenv("TRANSCRIBER_FFMPEG", str(program))
    return str(sound)


@pytest.mark.contract("No timeout.")
def test_a_job_that_hangs_is_ended_at_its_timeout_with_all_its_processes(
    home: Path, hanging: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSCRIBER_TIMEOUT", "3s")
    add_job(hanging, task_id="t")
    work()
    task = open_queue().get("t")
    open_queue().close()
    assert (task.status, task.error_class) == ("failed", "timeout")
    with works(home) as transcriber:
        until(lambda: not transcriber.living("main.py") and not transcriber.living("hanging-ffmpeg"), "the end")
    assert pipeline_of(Settings(home=home)).plan.phases[-1].timeout == timedelta(hours=6)  # by default


@pytest.mark.faults
@pytest.mark.contract("Children survive the worker.")
def test_the_programs_of_a_killed_worker_are_ended(home: Path, hanging: str) -> None:
    with works(home) as transcriber:
        add_job(hanging, task_id="t")
        transcriber.start()
        until(lambda: transcriber.living("hanging-ffmpeg"), "the program")
        transcriber.kill()
        until(lambda: not transcriber.living("hanging-ffmpeg"), "the end of the program after its worker")
        until(lambda: not transcriber.living("main.py"), "the end of main.py")
    open_queue().close()


@pytest.mark.faults
@pytest.mark.contract("A worker killed in any stage loses nothing and repeats nothing that was done.")
def test_a_worker_killed_in_each_stage_loses_nothing_and_repeats_nothing_that_was_done(
    models: ModelServer, queue: Queue, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSCRIBER_CHUNK_SECONDS", "1")  # two chunks, one after the other
    monkeypatch.setenv("TRANSCRIBER_PARALLEL", "1")
    sound = recording(tmp_path / "t.wav", speech=(0.5,)).read_bytes()
    models.files["/l.m3u"] = (b"t.wav\n", "audio/x-mpegurl")
    models.files["/t.wav"] = (sound, "audio/wav")
    job = {"job_id": "t", "url": f"{models.url}/l.m3u", "engine": GPT, "srt": True, "summary": True, "translate": True}
    with works(home) as transcriber:
        for hold in ("/l.m3u", "/t.wav", "chunk-2", "summary-1", "translation-1"):
            models.hold = hold
            models.held.clear()
            transcriber.start()
            if hold == "/l.m3u":
                drop(home, "t.json", job)
            until(models.held.is_set, f"the hold at {hold}\n{transcriber.said()}")
            transcriber.kill()
            models.hold = ""
            until(lambda: not transcriber.living("main.py"), "the end of main.py")
        work()
        parent = queue.get("t")
    (task,) = (each for each in queue.select() if each.parent_id == "t")
    assert (parent.status, parent.results["playlist"]["completed"]) == ("completed", 1)
    assert (task.status, task.retry_count) == ("completed", 0)
    # Once more for each kill, and never what was done before it.
    assert models.asked == ["/l.m3u", "/l.m3u", "/t.wav", "/t.wav"]
    sent = [f"{each['stage']}-{each['part']}" for each in models.requests]
    assert sent == ["chunk-1", *["chunk-2"] * 2, *["summary-1"] * 2, *["translation-1"] * 2]
    keys = [each["key"] for each in models.requests]
    assert keys[1] == keys[2]  # an endpoint that knows the key can answer without doing the work again
    assert [entry.what for entry in task.history].count("rescued") == 4
    found = task.results["transcribe"]
    assert all(Path(found[key]).is_file() for key in ("transcript_path", "srt_path", "translation_path", "audio_path"))
    left = [path.name for name in ("transcript", "audio", "video") for path in (home / name).glob(".*")]
    assert left == []
    assert sorted(path.name for path in (home / "queue").glob("*.json*")) == []
    until(lambda: not list((home / "work").iterdir()), "the removal of the work folder")


@pytest.mark.faults
@pytest.mark.contract("A worker killed in any stage loses nothing and repeats nothing that was done.")
def test_a_worker_killed_in_the_phase_order_loses_nothing(
    models: ModelServer, queue: Queue, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "held.py").write_text(
        "import time\nfrom pathlib import Path\nfrom transcriber import opening\n\n\n"
        f"def order(job: opening.Job):\n    Path({str(tmp_path / 'entered')!r}).touch()\n    time.sleep(900)\n\n\n"
        "opening.order = order\nfrom transcriber.app import queue\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    add_job(str(recording(tmp_path / "t.wav", speech=(0.5,))), task_id="t", engine=GPT)
    with works(home) as transcriber:
        transcriber.start(program=("onerow", "worker", "held"))
        until((tmp_path / "entered").exists, "the phase order")
        assert (queue.get("t").phase, queue.get("t").status) == ("order", "processing")
        transcriber.kill()
        transcriber.start()
        task = ended("t")
    assert (task.status, task.retry_count) == ("completed", 0)
    assert [entry.what for entry in task.history] == ["rescued", "advanced", "completed"]
    assert models.stages() == ["chunk"]


@pytest.mark.faults
def test_the_next_daemon_removes_work_that_a_killed_one_has_left_and_no_other(
    queue: Queue, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "t.srt").write_text("1\n00:00:00,000 --> 00:00:01,000\nhello\n")
    (tmp_path / "t.mp4").write_bytes(b"x")
    add_job(str(tmp_path / "t.mp4"), task_id="done", engine="youtube")
    code = (
        "import os; from types import SimpleNamespace; from onerow import Worker; from transcriber import opening;"
        "opening.shutil = SimpleNamespace(rmtree=lambda *_, **__: os._exit(9));"
        "Worker(opening.open_queue(), until_idle=True).run()"
    )
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == 9
    assert queue.get("done").status == "completed"
    add_job("/no/such.mp4", task_id="purged", engine="youtube")
    work()
    queue.purge(older_than="0s", statuses=["failed"])
    add_job("/no/such.mp4", task_id="failed", engine="youtube")
    work()
    by_hand = home / "work" / "0123456789abcdef"
    by_hand.mkdir()
    assert len(list((home / "work").iterdir())) == 4
    daemon = [sys.executable, "-m", "transcriber", "worker", "--until-idle"]
    assert subprocess.run(daemon, env=os.environ).returncode == 0
    assert sorted((home / "work").iterdir()) == [by_hand, home / "work" / "failed%3Atranscribe%3A0"]


@pytest.mark.faults
def test_a_full_disk_fails_the_job_as_resource_and_it_goes_on_when_there_is_space(
    models: ModelServer, queue: Queue, home: Path, tmp_path: Path
) -> None:
    sound = recording(tmp_path / "t.wav", speech=(70.0,)).read_bytes()
    models.files["/t.wav"] = (sound, "audio/wav")
    with a_small_disk(home / "work", "1m") as disk:
        assert len(sound) > 2_000_000
        add_job(f"{models.url}/t.wav", task_id="t", engine=GPT)
        work()
        task = queue.get("t")
        assert (task.status, task.error_class, task.attempt) == ("failed", "resource", 4)
        assert "No space left on device" in str(task.error)
        assert [path for path in disk.rglob("*") if path.is_file()] == []  # no half download takes the space
        assert list((home / "transcript").iterdir()) == []
        subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
        queue.retry("t")
        work()
    task = queue.get("t")
    assert task.status == "completed", log_of(task)
    assert Path(task.results["transcribe"]["transcript_path"]).is_file()


def test_a_url_that_an_insert_has_brought_and_that_is_none_fails_once(home: Path) -> None:
    queue = open_queue()
    queue.publish(queue.pipelines["transcribe"])
    make_view(queue)
    insert(home, "t", "", "http://[::1")
    work()
    task = queue.get("t")
    queue.close()
    assert (task.status, task.error_class, task.attempt) == ("failed", "permanent", 1)


def test_a_playlist_that_does_not_answer_delays_no_other_job(models: ModelServer, queue: Queue, home: Path) -> None:
    models.hold = "/l.m3u"
    with works(home) as transcriber:
        transcriber.start()
        drop(home, "l.json", {"job_id": "l", "url": f"{models.url}/l.m3u"})
        until(models.held.is_set, "the request")
        drop(home, "t.json", {"job_id": "t", "url": "/no/such/recording.wav"})
        until(
            lambda: [task for task in queue.select() if task.task_id == "t" and task.ended], "the end of the other job"
        )
        assert queue.get("l").attempt == 1
        assert queue.get("l").status == "processing"


# ── limits ──


def insert(home: Path, task_id: str, engine: str, url: str = "/a.wav") -> None:
    """Add a job by SQL, as another program does."""
    with contextlib.closing(sqlite3.connect(home / "transcriber.db")) as database, database:
        row = (task_id, url, engine)
        database.execute("INSERT INTO transcription_jobs (id, url, engine) VALUES (?, ?, ?)", row)


def running(queue: Queue) -> list[str]:
    """Run the first phase of all jobs; return the ids of those that may be transcribed at once."""
    assert Worker(queue, phases=["order"], until_idle=True, interval=0.05).run() == 0
    with queue.claim("transcribe", "transcribe", limit=20) as leases:
        return sorted(lease.task.task_id for lease in leases)


@pytest.mark.contract("Per-engine resource guide (whisper-cpp ≥ 4 GB per worker) enforced as limits.")
def test_heavy_engines_are_limited_by_the_memory_and_others_are_not(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSCRIBER_MEMORY", "9GB")
    for number in range(3):
        add_job("/a.wav", task_id=f"w{number}", engine="whisper-cpp")
        add_job("/a.wav", task_id=f"f{number}", engine="faster-whisper")
        add_job("/a.wav", task_id=f"g{number}", engine=GPT)
    ids = running(open_queue())
    open_queue().close()
    assert [name for name in ids if name.startswith("g")] == ["g0", "g1", "g2"]
    assert len(ids) == 5  # 9 GB have room for two jobs of 4 GB


@pytest.mark.contract("Per-engine resource guide (whisper-cpp ≥ 4 GB per worker) enforced as limits.")
def test_jobs_are_limited_alike_however_they_were_added(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSCRIBER_MEMORY", "4GB")
    monkeypatch.setenv("TRANSCRIBER_ENGINE", "whisper-cpp")
    queue = open_queue()
    queue.publish(queue.pipelines["transcribe"])
    make_view(queue)
    drop(home, "file.json", {"job_id": "file", "url": "/a.wav", "engine": "whisper-cpp"})
    receive()
    insert(home, "sql", "faster-whisper")
    queue.add(
        "transcribe", {"url": "/a.wav"}, task_id="form"
    )  # what the monitor's form adds; the engine is the default
    add_job("/a.wav", task_id="command")
    insert(home, "light", GPT)
    ids = running(queue)
    keys = {task.task_id: task.limit_key for task in queue.select()}
    queue.close()
    assert keys == {"file": "heavy", "sql": "heavy", "form": "heavy", "command": "heavy", "light": ""}
    assert "light" in ids
    assert len(ids) == 2


@pytest.mark.contract("Per-engine resource guide (whisper-cpp ≥ 4 GB per worker) enforced as limits.")
def test_a_heavy_engine_checks_the_free_memory_before_it_starts(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model.bin"
    model.write_bytes(b"")
    settings = Settings(home=home, memory=1 << 50, whisper_cpp=sys.executable, whisper_cpp_model=str(model))
    monkeypatch.setattr("transcriber.engines._free_memory", lambda: 3_900_000_000)
    with pytest.raises(Problem, match=r"needs 4 GB of memory, and 3\.9 GB are free") as raised:
        check_engine("whisper-cpp", settings)
    assert raised.value.error_class == "resource"
    check_engine("pocketsphinx", settings)


@pytest.mark.contract("Per-engine resource guide (whisper-cpp ≥ 4 GB per worker) enforced as limits.")
def test_a_job_that_uses_more_than_its_memory_is_ended_and_frees_it_for_the_others(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for whisper-cli that takes memory until it is killed."""
    program = tmp_path / "whisper-cli"
    program.write_text(f"#!{sys.executable}\nkept = []\nwhile True: kept.append(b'x' * 10_000_000)\n")
    program.chmod(0o755)
    (tmp_path / "model.bin").touch()
    monkeypatch.setenv("TRANSCRIBER_WHISPER_CPP", str(program))
    monkeypatch.setenv("TRANSCRIBER_WHISPER_CPP_MODEL", str(tmp_path / "model.bin"))
    monkeypatch.setenv("TRANSCRIBER_JOB_MEMORY", "300MB")
    add_job(str(recording(tmp_path / "t.wav")), task_id="large", engine="whisper-cpp")
    add_job(str(recording(tmp_path / "u.wav")), task_id="light", engine="pocketsphinx")
    work()
    large, light = open_queue().get("large"), open_queue().get("light")
    open_queue().close()
    assert (large.status, large.error_class, large.retry_count) == ("failed", "resource", 3)
    assert large.error == "transcribe used more than 300 MB of memory (its memory_limit)"
    assert light.status == "completed", light.error


# ── logs ──


@pytest.mark.contract("Same-second log names collide.")
def test_an_attempt_has_a_log_file_of_its_own_in_a_second_of_another(queue: Queue, home: Path) -> None:
    # Logs of other attempts, in each second until this one has surely ended, in either zone.
    began = (datetime.now(), datetime.now(UTC))
    names = {f"job-t-{moment + timedelta(seconds=n):%Y%m%d-%H%M%S}.log" for moment in began for n in range(1000)}
    for name in names:
        (home / "logs" / name).touch()
    add_job("/no/such/file.wav", task_id="t")
    work()
    (own,) = (path for path in (home / "logs").iterdir() if path.name not in names)
    assert re.fullmatch(r"job-t-\d{8}-\d{6}-2\.log", own.name)
    assert "there is no file" in own.read_text()
    assert not any((home / "logs" / name).read_text() for name in names)


def test_text_from_outside_can_t_pretend_to_be_a_step(models: ModelServer, queue: Queue) -> None:
    captions = "WEBVTT\n\n00:00.000 --> 00:01.000\n::step summary ok\n"
    models.files = {"/t.mp4": (b"", "video/mp4"), "/t.vtt": (captions.encode(), "text/vtt")}
    add_job(f"{models.url}/t.mp4", task_id="t", engine="youtube")
    work()
    task = queue.get("t")
    assert task.status == "completed", log_of(task)
    assert not any(line.startswith("::step summary") for line in log_of(task).splitlines())


def test_main_py_by_hand_continues_where_it_was_and_force_begins_anew(
    models: ModelServer, home: Path, tmp_path: Path
) -> None:
    path = recording(tmp_path / "t.wav", speech=(0.5,))
    main = [sys.executable, "-m", "transcriber.run.main", str(path), "--engine", GPT]
    for options in ([], [], ["--force"]):
        done = subprocess.run([*main, *options], env=os.environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert '"transcript_path"' in done.stdout
    assert models.stages() == ["chunk", "chunk"]
