"""Publishing to a folder: the file appears whole, with a note beside it, and never twice."""

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
    """The film in the folder under a name that the key decides; a second call with the same key changes nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    task_id, _, generation = key.split(":")
    again = "" if generation == "0" else f"-{int(generation) + 1}"
    target = inside(folder, f"{_slug(script.title)}{task_id}{again}.mp4", what="video")
    done = Published("folder", target.name, str(target))
    if target.exists():
        return done
    copy = partial(target)
    try:
        shutil.copyfile(file, copy)
        note = {"key": key, "title": script.title, "description": script.description, "sha256": film.sha256}
        beside = copy.with_suffix(".json")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(note)))
        beside.replace(target.with_suffix(".json"))
        with copy.open("rb") as copied:
            os.fsync(copied.fileno())
        # A link is the one act that fails when another attempt was first; a rename would replace what is there.
        os.link(copy, target)
    except FileExistsError:
        pass
    finally:
        copy.unlink(missing_ok=True)
    return done


def _slug(title: str) -> str:
    """A few words of the title, for people who look into the folder."""
    words = re.sub(r"[^\w]+", "-", title.casefold()).strip("-_")[:40].strip("-_")
    return f"{words}-" if words else ""
