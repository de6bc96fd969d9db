"""Paths by id: names from outside are checked before they become part of a path."""

import unicodedata
from pathlib import Path
from uuid import uuid4

from onerow import BadInput

_LONGEST = 180  # bytes; the file system allows 255, and suffixes are appended


def safe_name(name: str, what: str = "task_id") -> str:
    """Return the name if it is a single path component; else raise BadInput."""
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
    """Return a unique hidden path beside a file, to write to before the rename."""
    return target.with_name(f".{target.name}.{uuid4().hex[:12]}.part")


def inside(folder: Path, *names: str, what: str = "task_id") -> Path:
    """Return a path below a folder; every part must be a safe name."""
    return folder.joinpath(*(safe_name(name, what) for name in names))
