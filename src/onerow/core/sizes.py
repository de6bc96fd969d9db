"""Parse and format sizes: '512MB', '4GB', '1.5GiB', or a number of bytes."""

import re

from onerow.core.errors import BadInput

Size = str | int

_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_LARGEST = 2**60


def parse_size(value: Size, field: str = "size") -> int:
    """Return the size in bytes, at least 1; raise BadInput if it can't be parsed."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise BadInput(f"{field} must be a size like '512MB' or '4GB', not {value!r}", field=field)
    found = _SIZE.fullmatch(str(value).strip().lower())
    unit = _UNITS.get(found[2] or "b") if found else None
    if found is None or unit is None:
        raise BadInput(
            f"{field}: can't read the size {value!r}", fix="write it like '512MB', '4GB' or '1.5GiB'", field=field
        )
    size = int(float(found[1]) * unit)
    if not 0 < size <= _LARGEST:
        raise BadInput(f"{field} must be between 1 byte and an exbibyte, not {value!r}", field=field)
    return size


def spell_size(size: int) -> str:
    """Format a size, like '4 GB' or '1.5 MB'."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} B"
