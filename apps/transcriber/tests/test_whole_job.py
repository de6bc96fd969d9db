"""A job with all flags, run once: what it leaves behind; and a film with its own subtitles, without network."""

import stat
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from apps.transcriber.tests.kit import GPT, KEY, drop, ffmpeg, home_at, log_of, model_server, receive, recording, work
from onerow import Task
from transcriber import add_job, open_queue

pytestmark = pytest.mark.xdist_group("transcriber, whole job")
FLAGS = {"timestamps": True, "summary": True, "translate": True, "srt": True, "video": True}
LINES = ["The tide follows the moon.", "Bread is cheap.", "The moon pulls the sea, and the tide rises."]


class Ran(NamedTuple):
    """A job that has run: the task, its log, and what the servers saw."""

    home: Path
    task: Task
    log: str
    media: Path
    asked: list[str]
    requests: list[dict[str, Any]]

    @property
    def found(self) -> dict[str, Any]:
        return dict(self.task.results["transcribe"])

    def text(self, name: str) -> str:
        """Return the text of one of the files that the result names."""
        return Path(self.found[name]).read_text(encoding="utf-8")


def ran(home: Path, media: Path, asked: list[str], requests: list[dict[str, Any]]) -> Ran:
    queue = open_queue()
    task = queue.get("123")
    log = log_of(task)
    queue.close()
    return Ran(home, task, log, media, asked, requests)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A queue file with all flags, for a recording on a server."""
    folder = tmp_path_factory.mktemp("whole")
    sound = recording(folder / "t.mp3")
    with home_at(folder) as home, model_server() as models:
        models.files["/talk.mp3"] = (sound.read_bytes(), "audio/mpeg")
        url = f"{models.url}/talk.mp3?part=1"
        drop(home, "j.json", {"job_id": 123, "url": url, "title": "조수 🌊", "engine": GPT, "force": False, **FLAGS})
        receive()
        work()
        return ran(home, sound, models.asked, models.requests)


@pytest.mark.contract("rc 0 → completed with transcript_path and summary.")
def test_a_job_is_completed_with_transcript_path_and_summary(whole: Ran) -> None:
    assert (whole.task.status, whole.task.error) == ("completed", None), whole.log
    assert whole.text("transcript_path") == "[00:00:00] Words of part 1. 조수와 달.\n"
    assert whole.found["summary"] == "요약입니다."


@pytest.mark.contract("The folders `logs/`, `transcript/`, `audio/`, `video/`, `archive/`.")
def test_each_kind_of_file_is_in_its_folder(whole: Ran) -> None:
    folders = {"transcript": "transcript", "audio": "audio", "video": "video", "log": "logs"}
    for key, folder in folders.items():
        path = Path(whole.found[f"{key}_path"])
        assert path.parent == whole.home / folder
        assert path.is_file()
    assert (whole.home / "archive" / "j.json").is_file()


@pytest.mark.contract("Files 0640.")
def test_files_are_readable_for_the_owner_and_the_group_only(whole: Ran) -> None:
    paths = [Path(path) for key, path in whole.found.items() if key.endswith("_path")]
    assert len(paths) == 7
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths} == {path.name: 0o640 for path in paths}


@pytest.mark.contract("http(s) download.")
def test_the_recording_is_downloaded_once_as_it_is(whole: Ran) -> None:
    assert Path(whole.found["video_path"]).read_bytes() == whole.media.read_bytes()
    assert whole.asked == ["/talk.mp3"]


@pytest.mark.contract("OpenAI-compatible endpoint for transcription.")
def test_the_endpoint_gets_the_audio_with_the_key(whole: Ran) -> None:
    (sent,) = (each for each in whole.requests if each["path"] == "/audio/transcriptions")
    assert sent["auth"] == f"Bearer {KEY}"
    assert GPT.encode() in sent["body"]
    assert b'filename="chunk-1.mp3"' in sent["body"]


@pytest.mark.contract("Summary and translation through an OpenAI-compatible endpoint.")
def test_summary_and_translation_are_asked_from_the_endpoint(whole: Ran) -> None:
    sent = [(each["stage"], each["auth"]) for each in whole.requests if each["path"] == "/chat/completions"]
    assert sent == [("summary", f"Bearer {KEY}"), ("translation", f"Bearer {KEY}")]
    assert whole.found["summary"] == "요약입니다."
    assert whole.text("translation_path") == "번역입니다.\n"


def test_subtitles_are_written_as_srt_and_vtt(whole: Ran) -> None:
    assert "00:00:00,000 --> 00:00:01," in whole.text("srt_path")
    assert whole.text("vtt_path").startswith("WEBVTT\n\n00:00:00.000 --> ")


@pytest.mark.contract("Detail with status, progress, log tail, file paths, run time, engine.")
def test_the_worker_reads_the_progress_of_a_job_from_its_output(whole: Ran) -> None:
    assert whole.task.progress == {"done": 100, "total": 100, "note": "completed"}


# ── without network ──


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A film on this host with subtitles in two languages, named by a path that is not normalised; no endpoint is set."""
    folder = tmp_path_factory.mktemp("film")
    srt = folder / "s.srt"
    srt.write_text("".join(f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\n{line}\n\n" for n, line in enumerate(LINES, 1)))
    path = folder / "조수 film.mkv"
    sound = recording(folder / "t.wav", speech=(4.0,))
    other = folder / "o.srt"
    other.write_text("1\n00:00:01,000 --> 00:00:02,000\n조수\n")
    languages = ("-metadata:s:s:0", "language=kor", "-metadata:s:s:1", "language=eng")
    ffmpeg("-i", sound, "-i", other, "-i", srt, "-map", "0", "-map", "1", "-map", "2", *languages, "-c:s", "srt", path)
    with home_at(folder) as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSCRIBER_LANGUAGE", "en")
        add_job(f"{folder}/x/../{path.name}", task_id="123", engine="subtitles", summary=True)
        work()
        return ran(home, path, [], [])


@pytest.mark.contract("A local file download.")
def test_a_local_file_is_taken_where_it_is(film: Ran) -> None:
    assert film.task.status == "completed", film.log
    assert film.task.payload["url"] == str(film.media)
    (step,) = (line for line in film.log.splitlines() if line.startswith("::step download ok "))
    assert str(film.media) in step
    assert list((film.home / "video").iterdir()) == []


@pytest.mark.contract("A file's own subtitles.")
def test_the_subtitles_of_a_file_become_its_transcript(film: Ran) -> None:
    assert film.text("transcript_path") == f"{' '.join(LINES)}\n"
    assert "audio_path" not in film.found  # nothing was recognised


@pytest.mark.contract("Offline an extractive summary.")
def test_without_an_endpoint_the_summary_is_a_sentence_of_the_text(film: Ran) -> None:
    assert film.found["summary"] in LINES
    assert "tide" in film.found["summary"]
