"""Uploaded pictures: a folder per task, and a signal when all pictures are complete.

A program that puts files into uploads/<task_id>/ writes a file named READY last. Files that are still being written
have no READY beside them, or a name that begins with a dot.
"""

import asyncio
import shutil
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from onerow import BadInput, Filter, IllegalMove, Task
from video_studio.drawing import draw_scene
from video_studio.opening import open_queue
from video_studio.places import inside, partial, safe_name
from video_studio.script import Script
from video_studio.settings import Look, Settings

SIGNAL = "images.ready"
READY = "READY"
REFUSED = "REFUSED.txt"
_KINDS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")  # no other Pillow decoder is used, whatever the file's suffix
_MOST_PICTURES = 60


def upload(task_id: str, files: Sequence[Path]) -> Task:
    """Copy pictures to a task's folder and signal the task; all are checked before any is copied."""
    queue, settings = open_queue(), Settings.of_environment()
    folder = inside(settings.uploads, task_id)
    task = queue.get(task_id)
    if task.ended or task.phase in ("video", "youtube"):
        raise IllegalMove(
            f"task {task_id} has its pictures and is {task.status} at {task.phase}; to make it anew with others, "
            f"run first: studio queue replay {task_id} --phase image",
            task_id=task_id,
            status=task.status,
        )
    for file in files:
        _check_picture(file)
    names = [f"{number:02}{file.suffix.lower()}" for number, file in enumerate(files, 1)]
    if not names or len(names) > _MOST_PICTURES:
        raise BadInput(f"give 1 to {_MOST_PICTURES} pictures", field="files")
    folder.mkdir(parents=True, exist_ok=True)
    for file, name in zip(files, names, strict=True):
        _place(folder, name, file)
    return _tell(task_id, folder, names)


def collect_drops() -> list[str]:
    """Signal each task that waits for pictures and whose drop is complete; return their ids.

    An invalid drop is refused: READY is removed, and REFUSED.txt contains the reason.
    """
    signalled = []
    for task in open_queue().select(Filter(pipeline="videos", awaiting=f"signal:{SIGNAL}")):
        try:
            folder = inside(Settings.of_environment().uploads, task.task_id)
            if not (folder / READY).exists():
                continue
            names = _pictures_in(folder)
            for name in names:
                _check_picture(folder / name)
            if not names:
                raise BadInput(f"READY stands there, but no picture beside it ({', '.join(_KINDS)})", field="files")
        except BadInput as error:
            _refuse(folder, str(error))
            continue
        except OSError:
            continue  # the folder is being changed; the next call checks it again
        try:
            _tell(task.task_id, folder, names)
        except IllegalMove:
            continue  # the task was cancelled
        (folder / REFUSED).unlink(missing_ok=True)
        signalled.append(task.task_id)
    return signalled


def pictures(task_id: str, names: Iterable[str] | None, settings: Settings) -> list[Path]:
    """Return the files of a task, as named by its signal, or all in its folder; raise BadInput if one is missing."""
    folder = inside(settings.uploads, task_id)
    found = [inside(folder, name, what="picture") for name in (names or _pictures_in(folder))]
    if not found:
        raise BadInput(f"there are no pictures; run: studio upload {task_id} FILE …", field="image")
    for path in found:
        _check_picture(path)
    return found


async def draw(task_id: str, script: Script, settings: Settings, key: str) -> None:
    """Draw one picture per scene and signal the task."""
    folder = inside(settings.uploads, task_id)
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{number:02}.png" for number in range(1, len(script.scenes) + 1)]
    for number, name in enumerate(names):
        await asyncio.to_thread(_draw, folder / name, script.title, number, settings.look)
    # The same signal id makes a second attempt idempotent.
    await open_queue().signal_async(task_id, SIGNAL, names, signal_id=key, by="studio")


def _draw(target: Path, title: str, number: int, look: Look) -> None:
    copy = partial(target)
    draw_scene(title, number, look).save(copy, format="PNG", compress_level=1)
    copy.replace(target)


def _tell(task_id: str, folder: Path, names: list[str]) -> Task:
    state = [(name, stat.st_size, stat.st_mtime_ns) for name in names for stat in [(folder / name).stat()]]
    drop = sha256(repr(state).encode()).hexdigest()[:16]
    return open_queue().signal(task_id, SIGNAL, names, signal_id=f"drop:{drop}", by="studio")


def _place(folder: Path, name: str, file: Path) -> None:
    """Copy a file; it gets its name only when it is complete."""
    copy = partial(folder / name)
    shutil.copyfile(file, copy)
    copy.replace(folder / name)


def _pictures_in(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    names = sorted(p.name for p in folder.iterdir() if p.suffix.lower() in _KINDS and not p.name.startswith("."))
    if len(names) > _MOST_PICTURES:
        raise BadInput(f"{len(names)} pictures are too many; at most {_MOST_PICTURES}", field="files")
    return [safe_name(name, "picture") for name in names]


def _check_picture(file: Path) -> None:
    """Raise BadInput unless the file is a complete picture of a supported format."""
    if file.suffix.lower() not in _KINDS:
        raise BadInput(f"{file.name} is no picture by its name; one of {', '.join(_KINDS)}", field="files")
    try:
        with Image.open(file, formats=_FORMATS) as picture:
            picture.load()  # decodes the whole file, which detects a truncated one
    except FileNotFoundError:
        raise BadInput(f"{file.name} is not there", field="files") from None
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise BadInput(f"{file.name} can't be read as a picture: {error}", field="files") from None


def _refuse(folder: Path, reason: str) -> None:
    # Write the reason first, then remove READY: after a crash between the two, the next call refuses it again.
    (folder / REFUSED).write_text(f"{reason}\nPut it right, then write {READY} again.\n", encoding="utf-8")
    (folder / READY).unlink(missing_ok=True)
