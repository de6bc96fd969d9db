"""The mutants, as mutants.toml lists them."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """One piece of text in one file, what replaces it, and the tests that must notice."""

    name: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]
    only: str = ""  # as pytest's -k

    def applied_to(self, text: str) -> str:
        """The file's text with the mutation; raises ValueError unless the piece occurs exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {text.count(self.old)} times in {self.path}")
        return text.replace(self.old, self.new)


def load() -> list[Mutant]:
    listed = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**(each | {"tests": tuple(each["tests"])})) for each in listed]
