"""Lint prose: fail on words that are not technical terms, in code, comments, docs and tests.

`python -m tools.plain_words` lists each place. CONTRIBUTING.md says what to write instead.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BANNED = (
    # vague persons and quantities: name the component or the number
    "nobody", "somebody", "whoever", "meanwhile", "so many", "unbidden", "the other side",
    # "told" and "in the way" have a dozen meanings: returned, notified, changed, conflicting
    "told", "in the way", "has word", "comes of it", "kept coming",
    # metaphors for components that have plain names
    "appetite", "clerk", "usher", "scribe", "statistician", "registrar", "warden", "turner", "theatre", "thin loop",
    "moving house", "in your house", "at night",
)  # fmt: skip
SUFFIXES = {".py", ".md", ".sql", ".toml", ".yaml", ".js"}
LEFT_OUT = re.compile(r"^(LICENSE|CHANGELOG\.md|tools/plain_words\.py|tests/compatibility/data/)|sql/schema_\d+\.sql$")
_PATTERN = re.compile(
    r"(?<![\w])(" + "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in BANNED) + r")(?![\w])", re.I
)


def findings() -> list[str]:
    """Each place as 'file:line: word'."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = []
    for name in listed.splitlines():
        path = ROOT / name
        if path.suffix not in SUFFIXES or LEFT_OUT.search(name) or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            found += [f"{name}:{number}: {match.group(0)!r}: {line.strip()[:100]}" for match in _PATTERN.finditer(line)]
    return found


if __name__ == "__main__":
    places = findings()
    print(*places, sep="\n")
    sys.exit(f"{len(places)} words that are not technical terms; write what is meant" if places else 0)
