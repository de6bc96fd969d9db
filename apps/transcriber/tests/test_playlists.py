"""Playlists: a list of recordings becomes a job for each, and waits for them."""

from pathlib import Path

import pytest

from apps.transcriber.tests.kit import GPT, drop, receive, recording, work
from apps.transcriber.tests.model_server import ModelServer
from onerow import Queue
from transcriber import add_job
from transcriber.playlists import entries_of
from transcriber.problems import Problem


@pytest.mark.contract("A playlist becomes one task per video.")
def test_a_playlist_becomes_one_task_per_video_and_waits_for_them(
    models: ModelServer, queue: Queue, home: Path, tmp_path: Path
) -> None:
    sound = recording(tmp_path / "t.wav", speech=(0.5,)).read_bytes()
    page = b'<rss version="2.0"><channel><title>L</title><item><title>Three</title><link>%s/3.wav</link></item></channel></rss>'
    models.files = {f"/{name}.wav": (sound, "audio/wav") for name in ("1", "2", "3")}
    models.files["/l.m3u"] = (
        f"#EXTM3U\n#EXTINF:5,하나\n1.wav\n{models.url}/2.wav\n1.wav\n".encode(),
        "audio/x-mpegurl",
    )
    models.files["/feed"] = (page % models.url.encode(), "application/rss+xml")
    drop(home, "l.json", {"job_id": "l", "url": f"{models.url}/l.m3u", "engine": GPT, "srt": True})
    drop(home, "m.json", {"job_id": "m", "url": f"{models.url}/feed?list=PL1", "engine": GPT})
    receive()
    work()
    task = queue.get("l")
    assert (task.status, task.results["playlist"]) == (
        "completed",
        {"videos": 2, "completed": 2, "failed": 0, "cancelled": 0},
    )
    children = [each for each in queue.select() if each.parent_id == "l"]
    assert sorted(each.title for each in children) == [f"{models.url}/2.wav", "하나"]
    assert all(Path(each.results["transcribe"]["srt_path"]).exists() for each in children)
    assert queue.get("m").results["playlist"] == {"videos": 1, "completed": 1, "failed": 0, "cancelled": 0}
    assert [each.title for each in queue.select() if each.parent_id == "m"] == ["Three"]
    assert models.asked.count("/l.m3u") == 1


def test_a_playlist_that_can_t_be_read_fails_with_its_class(models: ModelServer, queue: Queue) -> None:
    models.statuses["/l.m3u"] = 503  # once
    add_job(f"{models.url}/l.m3u", task_id="l")
    add_job("/no/such/list.m3u", task_id="m")
    models.files["/local.m3u"] = (b"file:///etc/hosts\n", "audio/x-mpegurl")
    add_job(f"{models.url}/local.m3u", task_id="n")
    work()
    assert (queue.get("l").error_class, queue.get("l").attempt) == ("permanent", 2)
    assert (queue.get("m").error_class, queue.get("m").attempt) == ("permanent", 1)
    assert "may not name files of this host" in str(queue.get("n").error)
    assert len(list(queue.select())) == 3


def test_a_list_may_have_a_mark_of_utf_8_windows_line_ends_titles_and_repetitions(tmp_path: Path) -> None:
    path = tmp_path / "강의.M3U8"
    path.write_bytes(
        "\ufeff#EXTM3U\r\n#EXTINF:4,하나, 둘\r\n조수 와 달.flac\r\n\r\n# c\r\n./b.mp3\r\nx/../b.mp3\r\n".encode()
    )
    assert entries_of(str(path)) == [
        {"url": str(tmp_path / "조수 와 달.flac"), "title": "하나, 둘"},
        {"url": str(tmp_path / "b.mp3"), "title": ""},
    ]


@pytest.mark.parametrize(
    "content, said",
    [
        ("조수.flac".encode("cp949"), "not text in UTF-8"),
        ("a.flac".encode("utf-16"), "not text in UTF-8"),
        (b"\0" * 100, "not text in UTF-8"),
        (b"#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n0.ts\n", "HLS stream"),
        (b"#EXTM3U\n# nothing\n", "empty"),
    ],
)
def test_what_is_no_list_is_refused_with_the_reason(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "l.m3u"
    path.write_bytes(content)
    with pytest.raises(Problem, match=said):
        entries_of(str(path))


def test_an_entry_that_can_t_be_used_fails_by_itself(
    models: ModelServer, queue: Queue, home: Path, tmp_path: Path
) -> None:
    recording(tmp_path / "a.wav", speech=(0.5,))
    (tmp_path / "l.m3u").write_text("ftp://host/x.mp3\na.wav\nno\tsuch.wav\ninner.m3u\n")
    add_job(str(tmp_path / "l.m3u"), task_id="l", engine=GPT)
    work()
    counts = {"videos": 4, "completed": 1, "failed": 3, "cancelled": 0}
    assert (queue.get("l").status, queue.get("l").results["playlist"]) == ("completed", counts)
    found = {task.payload["url"]: task for task in queue.find("parent:l").tasks}
    assert found[str(tmp_path / "a.wav")].status == "completed"
    for url, said in {
        "ftp://host/x.mp3": "unsupported protocol",
        str(tmp_path / "no\tsuch.wav"): "there is no file",
        str(tmp_path / "inner.m3u"): "a list in a list is not read",
    }.items():
        assert said in str(found[url].error)
        assert found[url].error_class == "permanent"
