"""main.py as a worker runs it: stages, steps, results, error classes."""

import errno
import gzip
import itertools
import re
import sys
from pathlib import Path

import httpx
import pytest

from apps.transcriber.tests.kit import GPT, ffmpeg, log_of, recording, sample, work
from apps.transcriber.tests.model_server import ModelServer
from apps.video_studio.tests.serving import Handler, Server
from onerow import Queue
from tests.faults.kit import a_small_disk
from transcriber import add_job
from transcriber.audio import extract_audio, listen
from transcriber.captions import read_captions
from transcriber.download import download
from transcriber.existing import published_captions
from transcriber.playlists import entries_of
from transcriber.problems import EXIT_CODES, Problem, problem_of
from transcriber.program import main
from transcriber.settings import Settings
from transcriber.steps import Steps


@pytest.mark.contract(
    "download_, transcription_, summary_, srt_, translation_completed as steps that a retry does not repeat."
)
def test_a_retry_repeats_no_step_that_is_done(models: ModelServer, queue: Queue, tmp_path: Path) -> None:
    models.files["/talk.wav"] = (recording(tmp_path / "t.wav").read_bytes(), "audio/wav")
    models.failures = {"chunk": [(503, "busy")], "summary": [(502, "bad")], "translation": [(429, "slow down")]}
    add_job(f"{models.url}/talk.wav", task_id="조수 1", engine=GPT, summary=True, translate=True, srt=True)
    work()
    task = queue.get("조수 1")
    assert task.status == "completed", log_of(task)
    assert task.attempt == 4
    assert models.asked == ["/talk.wav"]
    assert models.stages() == ["chunk", "chunk", "summary", "summary", "translation", "translation"]
    assert log_of(task).count("::step transcription ok") == 1
    assert log_of(task).count("download: done before") == 3


@pytest.mark.contract("Audio is transcribed in parallel chunks (cut at silences, each a step).")
def test_long_audio_is_cut_at_silences_and_its_chunks_run_at_once(
    models: ModelServer, queue: Queue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRANSCRIBER_CHUNK_SECONDS", "4")
    monkeypatch.setenv("TRANSCRIBER_PARALLEL", "3")
    models.together = 3
    path = recording(tmp_path / "t.wav", speech=(2.0, 2.0, 2.0), silence=1.0)
    add_job(str(path), task_id="t", engine=GPT)
    from transcriber import open_queue

    work()
    task = open_queue().get("t")
    open_queue().close()
    assert task.status == "completed"
    steps = task.results["transcribe"]
    assert Path(steps["transcript_path"]).read_text().count("Words of part") == 3
    assert models.most_at_once == 3
    chunks = [line for line in log_of(task).splitlines() if line.startswith("::step chunk-")]
    starts = sorted(float(line.partition('"from":')[2].partition(",")[0]) for line in chunks)
    # The silences are at 2 to 3, 5 to 6 and 8 to 9 seconds.
    assert [round(start, 1) for start in starts] == [0.0, 2.5, 5.5]


@pytest.mark.contract("Engine `youtube` takes existing captions.")
def test_captions_of_a_page_are_taken_and_nothing_is_recognised(models: ModelServer, queue: Queue) -> None:
    page = (
        '<html><title>Tides</title><video src="v.mp4"><track kind="captions" srclang="en" src="c.vtt"></video></html>'
    )
    captions = "WEBVTT\n\n00:01.000 --> 00:02.500\n<b>The tide</b> comes in.\n\n00:02.500 --> 00:04.000\nThe tide comes in.\nIt goes out &amp; back.\n"
    models.files = {
        "/watch": (page.encode(), "text/html"),
        "/v.mp4": (b"\0" * 2000, "video/mp4"),
        "/c.vtt": (captions.encode(), "text/vtt"),
    }
    add_job(f"{models.url}/watch?v=abc", task_id="t", engine="youtube", timestamps=True)
    work()
    task = queue.get("t")
    assert task.status == "completed", log_of(task)
    text = Path(task.results["transcribe"]["transcript_path"]).read_text()
    assert text == "[00:00:01] The tide comes in.\n[00:00:02] It goes out & back.\n"
    assert models.requests == []


def test_of_the_captions_of_a_page_those_in_the_language_are_taken(models: ModelServer) -> None:
    names = ("ar", "en-US", "ko")
    tracks = "".join(f'<track kind="captions" srclang="{name}" src="{name}.vtt">' for name in names)
    models.files = {"/watch": (f'<html><video src="v.mp4">{tracks}</video></html>'.encode(), "text/html")}
    models.files |= {
        f"/{name}.vtt": (f"WEBVTT\n\n00:01.000 --> 00:02.000\n{name}\n".encode(), "text/vtt") for name in names
    }
    models.files["/v.mp4"] = (b"\0" * 2000, "video/mp4")
    languages = ("en", "ko", "ja", "auto")
    taken = {each: published_captions(f"{models.url}/watch?v=1", each)[0].text for each in languages}
    assert taken == {"en": "en-US", "ko": "ko", "ja": "en-US", "auto": "en-US"}


@pytest.mark.contract("yt-dlp as an extra.")
def test_media_of_a_page_are_downloaded_with_yt_dlp(models: ModelServer, queue: Queue, tmp_path: Path) -> None:
    media = recording(tmp_path / "t.mp4").read_bytes()
    page = b'<html><title>Tides</title><video src="/v.mp4"></video></html>'
    models.files = {"/watch": (page, "text/html"), "/v.mp4": (media, "video/mp4")}
    add_job(f"{models.url}/watch?v=a", task_id="t", engine=GPT, video=True)
    work()
    task = queue.get("t")
    assert task.status == "completed", log_of(task)
    assert Path(task.results["transcribe"]["video_path"]).read_bytes() == media


@pytest.mark.contract("yt-dlp as an extra.")
def test_without_the_extra_a_page_says_what_to_install(
    models: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yt_dlp", None)
    models.files["/watch"] = (b"<html>", "text/html")
    with pytest.raises(Problem, match=r"pip install yt-dlp"):
        download(f"{models.url}/watch", tmp_path / "source", Steps(tmp_path))


@pytest.mark.contract("Translation without an endpoint fails `permanent` and says what to set.")
def test_a_translation_without_an_endpoint_fails_at_once_and_says_what_to_set(queue: Queue) -> None:
    add_job(str(sample("degrees")), task_id="t", translate=True)
    work()
    task = queue.get("t")
    assert (task.status, task.error_class, task.attempt) == ("failed", "permanent", 1)
    assert "set OPENAI_API_KEY, or TRANSCRIBER_OPENAI_BASE_URL" in str(task.error)


@pytest.mark.contract("Else failed with the message.")
@pytest.mark.parametrize(
    "answer,error_class,attempts,said",
    [
        ((500, "x"), "network", 4, r"POST http://.*/audio/transcriptions: 500 Internal Server Error"),
        ((429, '{"error": {"code": "insufficient_quota"}}'), "auth", 1, "the quota of the endpoint is used up"),
    ],
)
def test_an_error_of_the_endpoint_fails_the_job_with_its_class_and_message(
    models: ModelServer,
    queue: Queue,
    tmp_path: Path,
    answer: tuple[int, str],
    error_class: str,
    attempts: int,
    said: str,
) -> None:
    models.failures = {"chunk": [answer] * 4}
    add_job(str(recording(tmp_path / "t.wav", speech=(0.5,))), task_id="t", engine=GPT)
    work()
    task = queue.get("t")
    assert (task.status, task.error_class, task.attempt) == ("failed", error_class, attempts)
    assert re.match(said, str(task.error))  # lists show the beginning


@pytest.mark.contract("Classes network, limit, auth, resource, permanent.")
@pytest.mark.parametrize(
    "error,error_class",
    [
        (401, "auth"), (403, "auth"), (404, "permanent"), (400, "permanent"), (408, "network"), (429, "limit"),
        (503, "network"), (httpx.ConnectTimeout("slow"), "network"), (httpx.UnsupportedProtocol("gopher"), "permanent"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "resource"), (MemoryError(), "resource"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "unknown"), (402, "auth"),
    ],
)  # fmt: skip
def test_an_error_has_a_class_and_the_worker_reads_it_from_the_exit_code(
    queue: Queue, error: int | Exception, error_class: str
) -> None:
    if isinstance(error, int):
        response = httpx.Response(error, request=httpx.Request("GET", "http://host/a?key=canary"))
        error = httpx.HTTPStatusError("x", request=response.request, response=response)
    problem = problem_of(error)
    assert problem is not None
    assert problem.error_class == error_class
    assert "canary" not in str(problem)
    command = queue.pipelines["transcribe"].handlers["transcribe"].function
    assert command.class_of(EXIT_CODES[error_class]) == error_class  # type: ignore[attr-defined]
    assert problem_of(KeyError("a defect")) is None


def test_an_error_of_the_network_names_the_host(tmp_path: Path) -> None:
    with pytest.raises(httpx.ConnectError) as raised:
        download("http://127.0.0.1:1/a.mp3?key=canary", tmp_path / "source", Steps(tmp_path))
    assert re.match(r"127\.0\.0\.1: ConnectError: ", str(problem_of(raised.value)))
    assert "canary" not in str(problem_of(raised.value))


@pytest.mark.contract("permanent never retried.")
def test_a_file_that_is_no_recording_fails_permanently_and_leaves_no_part(
    queue: Queue, home: Path, tmp_path: Path
) -> None:
    for number, content in enumerate([b"", b"this is no sound", b"#EXTM3U\n#EXT-X-VERSION:3\n"]):
        (tmp_path / f"{number}.wav").write_bytes(content)
        add_job(str(tmp_path / f"{number}.wav"), task_id=str(number))
    work()
    for task in queue.select():
        assert (task.status, task.error_class, task.attempt) == ("failed", "permanent", 1)
        assert "ffmpeg can't read it" in str(task.error)
    assert list((home / "audio").iterdir()) == []


def test_a_file_without_sound_says_so(home: Path, tmp_path: Path) -> None:
    picture = tmp_path / "t.png"
    ffmpeg("-f", "lavfi", "-i", "color=s=64x64", "-frames:v", "1", picture)
    with pytest.raises(Problem, match="the file has no sound") as raised:
        extract_audio(Settings(home=home), picture, tmp_path / "t.flac")
    assert raised.value.error_class == "permanent"


@pytest.mark.faults
def test_ffmpeg_on_a_full_disk_or_killed_is_a_lack_of_resources(home: Path, tmp_path: Path) -> None:
    sound = recording(tmp_path / "t.wav", speech=(20.0,))
    with a_small_disk(home / "audio", "64k") as disk:
        with pytest.raises(Problem, match="No space left on device") as raised:
            extract_audio(Settings(home=home), sound, disk / "t.flac")
        assert raised.value.error_class == "resource"
        assert list(disk.iterdir()) == []
    killed = tmp_path / "ffmpeg"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    with pytest.raises(Problem, match="signal 9") as raised:
        extract_audio(Settings(home=home, ffmpeg=str(killed)), sound, tmp_path / "t.flac")
    assert raised.value.error_class == "resource"


@pytest.mark.parametrize("name", ["-x\ny.wav", "concat:a|b.wav", '조수\'s "50%" %d.wav'])
def test_ffmpeg_takes_a_file_of_any_name(home: Path, tmp_path: Path, name: str) -> None:
    recording(tmp_path / "t.wav", speech=(0.5,)).rename(tmp_path / name)
    extract_audio(Settings(home=home), tmp_path / name, tmp_path / "t.flac")
    assert listen(Settings(home=home), tmp_path / "t.flac")[0] > 1


@pytest.mark.contract("Audio is transcribed in parallel chunks (cut at silences, each a step).")
def test_a_chunk_of_another_span_or_engine_is_not_taken_for_one_that_is_done(
    models: ModelServer, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(recording(tmp_path / "t.wav", speech=(2.0, 2.0, 2.0), silence=1.0))
    monkeypatch.setenv("TRANSCRIBER_PARALLEL", "1")
    # Chunks from 0 to 5.5 and to 9 s, then from 0 to 2.5, 5.5 and 9 s: only the last is the same.
    for seconds, engine, rc in (("6", GPT, 69), ("4", GPT, 69), ("4", GPT, 0), ("4", "other", 0)):
        models.failures = {"chunk": [None, (503, "busy")] if rc else []}
        monkeypatch.setenv("TRANSCRIBER_CHUNK_SECONDS", seconds)
        monkeypatch.setenv("ONEROW_IDEMPOTENCY_KEY", "t")
        monkeypatch.setenv("TRANSCRIBER_ENGINE", engine)
        assert main([path]) == rc
    assert [each["part"] for each in models.requests] == ["1", "2", "1", "2", "2", "3"]
    keys = [each["key"] for each in models.requests]
    assert keys[0] != keys[2]  # else an endpoint that knows the key answers with the words of the other span
    assert keys[3] == keys[4]
    (text,) = (home / "transcript").glob("*.txt")
    assert re.findall(r"part (\d)", text.read_text()) == ["1", "2", "3"]


def test_a_key_that_can_t_be_sent_is_not_shown(
    models: ModelServer, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    path = str(recording(tmp_path / "t.wav", speech=(0.5,)))
    for key in ("sk-canary…", "sk-canary\nsk-other"):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        assert main([path, "--engine", GPT]) == EXIT_CODES["auth"]
        said = capfd.readouterr().err
        assert "OPENAI_API_KEY" in said
        assert "canary" not in said
    assert models.requests == []


def test_no_request_is_sent_after_one_that_says_that_the_key_is_wrong(
    models: ModelServer, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(recording(tmp_path / "t.wav", speech=(8.0,)))
    monkeypatch.setenv("TRANSCRIBER_CHUNK_SECONDS", "1")
    models.together = 2  # both are under way when they fail
    models.failures = {"chunk": [(401, "wrong key")] * 9}
    assert main([path, "--engine", GPT]) == EXIT_CODES["auth"]
    assert len(models.requests) == 2


@pytest.mark.contract(
    "download_, transcription_, summary_, srt_, translation_completed as steps that a retry does not repeat."
)
def test_a_retry_asks_for_no_piece_of_a_summary_or_translation_again(
    models: ModelServer, home: Path, tmp_path: Path
) -> None:
    cues = "".join(
        f"00:{n // 60:02}:{n % 60:02}.000 --> 00:{n // 60:02}:{n % 60:02}.900\nline {n} {'x' * 80}\n\n"
        for n in range(200)
    )
    (tmp_path / "t.vtt").write_text(f"WEBVTT\n\n{cues}")
    arguments = [str(tmp_path / "t.mp4"), "--engine", "youtube", "--summary", "--translate"]
    models.failures = {"summary": [None, None, (429, "slow down")], "translation": [None, None, (429, "slow down")]}
    assert [main(arguments) for _ in range(3)] == [EXIT_CODES["limit"], EXIT_CODES["limit"], 0]
    sent = [(each["stage"], each["part"]) for each in models.requests]
    assert sent == [
        *(("summary", part) for part in ("1", "2", "3", "3", "all")),
        *(("translation", part) for part in ("1", "2", "3", "3")),
    ]


def test_an_answer_without_words_is_no_transcript_without_words(
    models: ModelServer, home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = str(recording(tmp_path / "t.wav", speech=(0.5,)))
    bodies = [
        '{"error": {"message": "overloaded"}}',
        '{"text": null}',
        "<html>",
        "[1]",
        '{"text": "a", "segments": [1]}',
    ]
    models.failures = {"chunk": [(200, body) for body in bodies]}
    for body in bodies:
        assert main([path, "--engine", GPT]) == EXIT_CODES["network"]
        assert body in capfd.readouterr().err
    models.failures = {"chunk": [(404, '{"error": {"message": "The model does not exist"}}')]}
    assert main([path, "--engine", GPT]) == EXIT_CODES["permanent"]
    assert "404 Not Found (The model does not exist)" in capfd.readouterr().err
    assert list((home / "transcript").glob("*")) == []


def test_a_model_without_times_gives_short_cues_where_there_is_sound(
    models: ModelServer, home: Path, tmp_path: Path
) -> None:
    models.words = " ".join(f"{n}: the tide follows the moon, and the moon pulls the sea." for n in range(6))
    path = recording(tmp_path / "t.wav", speech=(2.0, 2.0), silence=1.0)
    assert main([str(path), "--engine", GPT, "--srt"]) == 0
    (srt,) = (home / "transcript").glob("*.srt")
    cues = read_captions(srt.read_text())
    assert " ".join(cue.text for cue in cues) == models.words
    assert all(len(cue.text) <= 84 for cue in cues)
    assert len(cues) == 6
    # The silences are from 2 to 3 s, and from 5 s on; after a third and two thirds of the words come 1.3 and 3.7 s.
    assert [round(cues[number].start, 1) for number in (0, 2, 4)] == [0, 1.3, 3.7]
    assert round(cues[-1].end) == 5
    assert all(one.end == two.start for one, two in itertools.pairwise(cues))


@pytest.mark.parametrize("language", ["", "ko"])
def test_the_endpoint_gets_the_language_unless_it_shall_find_it(
    models: ModelServer, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    monkeypatch.setenv("TRANSCRIBER_LANGUAGE", language)
    assert main([str(recording(tmp_path / "t.wav", speech=(0.5,))), "--engine", GPT, "--summary"]) == 0
    chunk, summary = (each["body"] for each in models.requests)
    assert (b'name="language"\r\n\r\nko\r\n' in chunk, b'name="language"' in chunk) == (bool(language), bool(language))
    assert (b"in its own language" in summary) == (not language)


def test_a_piece_of_another_text_is_asked_again(models: ModelServer, home: Path, tmp_path: Path) -> None:
    path = recording(tmp_path / "t.wav", speech=(0.5,))
    for words in ("first words", "other words"):
        models.words = words
        assert main([str(path), "--engine", GPT, "--summary"]) == 0
        for file in (home / "work").glob("*/chunk-*.json"):
            file.unlink()
        for file in (home / "transcript").iterdir():
            file.unlink()  # what these steps made is gone
    asked = [each["body"] for each in models.requests if each["stage"] == "summary"]
    assert [b"first words" in asked[0], b"other words" in asked[1], len(asked)] == [True, True, 2]


def test_times_outside_of_what_a_model_heard_are_cut(models: ModelServer, home: Path, tmp_path: Path) -> None:
    path = recording(tmp_path / "t.wav", speech=(0.5,), silence=0.4)
    assert main([str(path), "--engine", "openai/whisper-large", "--srt"]) == 0  # it says 0.5 to 1.5 s
    (srt,) = (home / "transcript").glob("*.srt")
    (cue,) = read_captions(srt.read_text())
    assert (cue.start, round(cue.end, 1)) == (0.5, 0.9)


def test_of_silence_no_summary_and_no_translation_is_asked(models: ModelServer, home: Path, tmp_path: Path) -> None:
    models.words = ""
    path = recording(tmp_path / "t.wav", speech=(0.5,))
    assert main([str(path), "--engine", GPT, "--summary", "--translate", "--srt"]) == 0
    assert models.stages() == ["chunk"]


# ── downloads ──


class _Odd(Handler):
    """Compressed media without a suffix, a file that says that it is larger than any disk, redirects to itself and to a list."""

    def do_GET(self) -> None:
        if self.path in ("/loop", "/old.m3u"):
            return self.answer(302, Location="/loop" if self.path == "/loop" else "/moved/new.m3u")
        if self.path == "/moved/new.m3u":
            return self.answer(200, b"a.mp3\n")
        body = gzip.compress(b"\0" * 1_000_000)
        headers = {"Content-Type": "video/mp4", "Content-Encoding": "gzip", "Content-Length": str(len(body))}
        if self.path == "/huge":
            headers = {"Content-Type": "video/mp4", "Content-Length": str(1 << 60)}
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        if self.path == "/huge":
            self.hang_up()
        return None


class _OddServer(Server):
    handler = _Odd


def test_a_compressed_download_is_saved_by_its_type_and_its_progress_ends_at_20_percent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _OddServer() as server:
        path = download(f"{server.url}/get?id=1", tmp_path / "source", Steps(tmp_path))
    assert (path.name, path.stat().st_size) == ("source.mp4", 1_000_000)
    shown = [int(percent) for percent in re.findall(r"progress (\d+)%", capsys.readouterr().out)]
    assert shown[-1] == 20
    assert shown == sorted(shown)


def test_a_file_that_does_not_fit_on_the_disk_is_not_begun(tmp_path: Path) -> None:
    with _OddServer() as server, pytest.raises(Problem, match="No space left on device") as raised:
        download(f"{server.url}/huge", tmp_path / "source", Steps(tmp_path))
    assert raised.value.error_class == "resource"
    assert list(tmp_path.iterdir()) == []


def test_a_redirect_without_end_is_permanent(tmp_path: Path) -> None:
    with _OddServer() as server, pytest.raises(httpx.TooManyRedirects) as raised:
        download(f"{server.url}/loop", tmp_path / "source", Steps(tmp_path))
    problem = problem_of(raised.value)
    assert problem is not None
    assert problem.error_class == "permanent"


def test_names_in_a_list_are_beside_it_where_a_redirect_has_led() -> None:
    with _OddServer() as server:
        assert entries_of(f"{server.url}/old.m3u") == [{"url": f"{server.url}/moved/a.mp3", "title": ""}]


def test_of_a_page_with_several_videos_none_is_downloaded(models: ModelServer, tmp_path: Path) -> None:
    page = b'<html><title>Channel</title><video src="/1.mp4"></video><video src="/2.mp4"></video></html>'
    models.files = {"/channel": (page, "text/html")} | {f"/{n}.mp4": (b"\0" * 2000, "video/mp4") for n in (1, 2)}
    with pytest.raises(Problem, match="several videos"):
        download(f"{models.url}/channel", tmp_path / "source", Steps(tmp_path))
    assert set(models.asked) == {"/channel"}
