"""Publishing to a folder: complete files, once per generation."""

import errno
import json
import os
import threading
from pathlib import Path

import pytest

from apps.video_studio.tests.kit import work
from onerow import Queue
from video_studio import add_video
from video_studio.film import Film
from video_studio.publish.folder import publish_to_folder
from video_studio.script import Script

SCRIPT = Script("Ebb & flow: 조수!", "about it", [])


def a_film(folder: Path, content: bytes = b"film") -> tuple[Path, Film]:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "t1-0.mp4"
    file.write_bytes(content)
    return file, Film(file.name, len(content), "abc", 1.0)


@pytest.mark.contract("A video is published to a local folder.")
def test_a_video_is_published_to_a_local_folder(queue: Queue, home: Path) -> None:
    task = add_video("tides", draw=True, task_id="t1")
    work()
    done = queue.get(task.task_id)
    (film,) = (home / "published").glob("*.mp4")
    assert (done.result["target"], done.result["where"]) == ("folder", str(film))
    assert film.read_bytes() == (home / "videos" / "t1-0.mp4").read_bytes()
    note = json.loads((home / "published" / "tides-t1.json").read_text())
    assert (note["title"], note["key"], note["sha256"]) == ("Tides", "t1:youtube:0", done.results["video"]["sha256"])
    assert sorted(path.name for path in (home / "published").iterdir()) == ["tides-t1.json", "tides-t1.mp4"]


def test_the_same_key_publishes_once_and_a_replay_publishes_anew(tmp_path: Path) -> None:
    file, film = a_film(tmp_path / "videos")
    target = tmp_path / "published"
    first = publish_to_folder(file, film, SCRIPT, target, "t1:youtube:0")
    file.unlink()
    file.write_bytes(b"another")
    assert publish_to_folder(file, film, SCRIPT, target, "t1:youtube:0") == first
    assert Path(first.where).read_bytes() == b"film"
    again = publish_to_folder(file, film, SCRIPT, target, "t1:youtube:1")
    assert [first.id, again.id] == ["ebb-flow-조수-t1.mp4", "ebb-flow-조수-t1-2.mp4"]


def test_two_attempts_at_once_publish_one_whole_file(tmp_path: Path) -> None:
    files = [a_film(tmp_path / str(n), bytes([n]) * 3_000_000) for n in range(4)]
    barrier = threading.Barrier(4)

    def attempt(file: Path, film: Film) -> None:
        barrier.wait()
        publish_to_folder(file, film, SCRIPT, tmp_path / "published", "t1:youtube:0")

    threads = [threading.Thread(target=attempt, args=pair) for pair in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (published,) = (tmp_path / "published").glob("*.mp4")
    assert published.read_bytes() in [bytes([n]) * 3_000_000 for n in range(4)]


def test_a_folder_on_another_disk_gets_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, film = a_film(tmp_path / "videos")
    link = os.link

    def across(source: Path, target: Path) -> None:
        if source == file:
            raise OSError(errno.EXDEV, "another disk")
        link(source, target)

    monkeypatch.setattr("os.link", across)
    done = publish_to_folder(file, film, SCRIPT, tmp_path / "published", "t1:youtube:0")
    assert Path(done.where).read_bytes() == b"film"
    assert not Path(done.where).samefile(file)
    assert len(list((tmp_path / "published").iterdir())) == 2


def test_a_title_without_letters_still_names_a_file(tmp_path: Path) -> None:
    file, film = a_film(tmp_path / "videos")
    done = publish_to_folder(file, film, Script("🌊 ../..", "", []), tmp_path / "published", "t1:youtube:0")
    assert done.id == "t1.mp4"
