"""Uploaded pictures are used only when all of them are complete."""

from pathlib import Path

import pytest
from PIL import Image

from apps.video_studio.tests.kit import picture, work
from onerow import BadInput, IllegalMove, Queue, Task, UnknownName
from video_studio import add_video, update_queue_status
from video_studio.settings import Settings
from video_studio.uploads import collect_drops, pictures, upload


@pytest.fixture
def waiting(queue: Queue) -> Task:
    """Return a task that waits for its pictures."""
    task = add_video("tides", task_id="t1")
    work()
    parked = queue.get(task.task_id)
    assert (parked.type, parked.status, parked.awaiting) == ("image", "waiting", "signal:images.ready")
    return parked


def drop(home: Path, name: str) -> Path:
    folder = home / "uploads" / "t1"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


@pytest.mark.contract(
    "The image phase ends by an event from outside: an upload or a crawl.",
    "Pictures are taken from the task's upload folder.",
)
def test_an_upload_ends_the_image_phase_and_its_pictures_are_in_the_tasks_folder(
    queue: Queue, waiting: Task, home: Path, tmp_path: Path
) -> None:
    upload("t1", [picture(tmp_path / "b.PNG", "red"), picture(tmp_path / "../a.jpg", "blue")])
    work()
    done = queue.get("t1")
    assert done.results["image"] == ["01.png", "02.jpg"]
    assert done.status == "completed"
    assert sorted(path.name for path in (home / "uploads" / "t1").iterdir()) == ["01.png", "02.jpg"]


@pytest.mark.contract("The image phase ends by an event from outside: an upload or a crawl.")
def test_a_crawl_ends_the_image_phase_when_its_last_file_says_ready(queue: Queue, waiting: Task, home: Path) -> None:
    picture(drop(home, "moon.png"))
    assert collect_drops() == []
    drop(home, "READY").touch()
    assert collect_drops() == ["t1"]
    assert collect_drops() == []
    work()
    assert queue.get("t1").results["image"] == ["moon.png"]


def test_a_crawl_that_found_nothing_can_say_so(queue: Queue, waiting: Task) -> None:
    update_queue_status("t1", "failed", error_message="nothing found on the web")
    failed = queue.get("t1")
    assert (failed.status, failed.type, failed.error) == ("failed", "image", "nothing found on the web")
    assert update_queue_status("t1", "waiting").awaiting == "signal:images.ready"


def test_what_is_half_written_does_not_count(queue: Queue, waiting: Task, home: Path) -> None:
    whole = picture(drop(home, "01.png")).read_bytes()
    drop(home, ".02.png.part").write_bytes(whole[:20])
    drop(home, "notes.txt").write_text("hello")
    drop(home, "READY").touch()
    assert collect_drops() == ["t1"]
    work()
    assert queue.get("t1").results["image"] == ["01.png"]


@pytest.mark.parametrize("wrong", ["cut short", "no picture", "nothing", "bad name"])
def test_a_drop_that_can_not_be_used_is_refused_with_the_reason_and_may_come_again(
    queue: Queue, waiting: Task, home: Path, wrong: str
) -> None:
    if wrong == "cut short":
        path = picture(drop(home, "01.png"))
        path.write_bytes(path.read_bytes()[:-30])
    elif wrong == "no picture":
        drop(home, "01.png").write_text("hello")
    elif wrong == "bad name":
        picture(drop(home, "my picture!.png"))
    drop(home, "READY").touch()
    assert collect_drops() == []
    assert queue.get("t1") == waiting
    assert "READY again" in drop(home, "REFUSED.txt").read_text()
    for file in (home / "uploads" / "t1").glob("*.png"):
        file.unlink()
    picture(drop(home, "01.png"))
    drop(home, "READY").touch()
    assert collect_drops() == ["t1"]
    assert not drop(home, "REFUSED.txt").exists()


def test_an_upload_is_looked_at_before_any_of_it_is_taken(waiting: Task, home: Path, tmp_path: Path) -> None:
    broken = tmp_path / "b.png"
    broken.write_bytes(b"no picture")
    for files, says in [
        ([picture(tmp_path / "a.png"), broken], "can't be read"),
        ([tmp_path / "none.png"], "not there"),
        ([Path(__file__)], "no picture by its name"),
        ([], "give 1 to 60"),
    ]:
        with pytest.raises(BadInput, match=says):
            upload("t1", files)
    assert not (home / "uploads").exists()


def test_an_upload_for_a_task_that_has_its_pictures_or_is_not_there_is_refused(
    queue: Queue, waiting: Task, tmp_path: Path
) -> None:
    file = picture(tmp_path / "a.png")
    upload("t1", [file])
    work()
    with pytest.raises(IllegalMove, match="studio queue replay t1 --phase image"):
        upload("t1", [file])
    with pytest.raises(UnknownName):
        upload("other", [file])
    with pytest.raises(BadInput, match="can't name a file"):
        upload("../t1", [file])


def test_an_upload_may_come_before_the_script_is_written(queue: Queue, tmp_path: Path) -> None:
    add_video("tides", task_id="t1")
    upload("t1", [picture(tmp_path / "a.png")])
    work()
    assert queue.get("t1").status == "completed"


@pytest.mark.contract("Pictures are drawn when the task asks for it.")
def test_pictures_are_drawn_when_the_task_asks_for_it(queue: Queue, home: Path) -> None:
    task = add_video("tides", draw=True)
    work()
    done = queue.get(task.task_id)
    assert done.results["image"] == ["01.png", "02.png", "03.png", "04.png", "05.png"]
    drawn = [Image.open(path) for path in pictures(task.task_id, done.results["image"], Settings.of_environment())]
    assert {image.size for image in drawn} == {(358, 180)}
    assert len({image.tobytes() for image in drawn}) == 5


@pytest.mark.parametrize("signalled", [["../../etc/passwd"], ["/etc/passwd"], [".part"], ["gone.png"], ["a\x00.png"]])
def test_a_signal_with_names_that_leave_the_folder_fails_the_task_for_good(
    queue: Queue, waiting: Task, home: Path, signalled: list[str]
) -> None:
    if "\x00" in signalled[0]:
        with pytest.raises(BadInput):
            queue.signal("t1", "images.ready", signalled)
        return
    queue.signal("t1", "images.ready", signalled)
    work()
    failed = queue.get("t1")
    assert (failed.status, failed.type, failed.error_class) == ("failed", "video", "permanent")


def test_pictures_that_are_not_there_are_asked_for(queue: Queue, waiting: Task) -> None:
    queue.finish("t1", phase_only=True)
    work()
    failed = queue.get("t1")
    assert failed.error_class == "permanent"
    assert "studio upload t1" in str(failed.error)
