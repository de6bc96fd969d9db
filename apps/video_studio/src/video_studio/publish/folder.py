"""Publishing to a folder: the file appears complete, with a note beside it, and only once."""

import contextlib
import errno
import os
import re
import shutil
from pathlib import Path

import msgspec

from video_studio.film import Film
from video_studio.places import inside, partial
from video_studio.publish.published import Published
from video_studio.script import Script


def publish_to_folder(file: Path, film: Film, script: Script, folder: Path, key: str) -> Published:
    """Publish the film under a name derived from the key; a second call with the same key changes nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    task_id, _, generation = key.split(":")
    again = "" if generation == "0" else f"-{int(generation) + 1}"
    target = inside(folder, f"{_slug(script.title)}{task_id}{again}.mp4", what="video")
    done = Published("folder", target.name, str(target))
    if target.exists():
        return done
    note = {"key": key, "title": script.title, "description": script.description, "sha256": film.sha256}
    beside = target.with_suffix(".json")
    draft = partial(beside)
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(note)))
    draft.replace(beside)
    # link() fails if another attempt was first; a rename would replace the existing file.
    with contextlib.suppress(FileExistsError):
        try:
            os.link(file, target)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.ENOTSUP):
                raise
            _link_a_copy(file, target)
    return done


def _link_a_copy(file: Path, target: Path) -> None:
    """Copy first, then link, for a folder on another disk."""
    copy = partial(target)
    try:
        shutil.copyfile(file, copy)
        with copy.open("rb") as copied:
            os.fsync(copied.fileno())
        os.link(copy, target)
    finally:
        copy.unlink(missing_ok=True)


def _slug(title: str) -> str:
    """Return a few words of the title for the file name."""
    words = re.sub(r"[^\w]+", "-", title.casefold()).strip("-_")[:40].strip("-_")
    return f"{words}-" if words else ""
