"""Folders and files by id: what comes from outside is a name, checked before it becomes a part of a path."""

import unicodedata
from pathlib import Path
from uuid import uuid4

from onerow import BadInput

_LONGEST = 180  # bytes; a file's name has room for 255, and we append to it


def safe_name(name: str, what: str = "task_id") -> str:
    """The name itself, if it can be nothing but one part of a path; else BadInput."""
    fits = (
        name[:1].isalnum()
        and all(letter.isalnum() or letter in "._-" or unicodedata.category(letter)[0] == "M" for letter in name)
        and len(name.encode("utf-8", "replace")) <= _LONGEST
        and unicodedata.is_normalized("NFC", name)
    )
    if not fits:
        raise BadInput(
            f"{what} {name[:100]!r} can't name a file here; "
            "use letters, digits, '.', '_' and '-', begin with a letter or digit, and keep it under 180 bytes",
            field=what,
        )
    return name


def partial(target: Path) -> Path:
    """Where a file is written before it gets its name: beside it, hidden, and nobody else's."""
    return target.with_name(f".{target.name}.{uuid4().hex[:12]}.part")


def inside(folder: Path, *names: str, what: str = "task_id") -> Path:
    """A path below a folder, each part of it a safe name."""
    return folder.joinpath(*(safe_name(name, what) for name in names))
