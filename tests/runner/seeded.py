"""Random numbers and names that follow from the seed of the run. It imports no test tools: programs of tests use it too."""

import os
import random
import re
from functools import cache

VARIABLE = "ONEROW_TEST_SEED"


def seed() -> int:
    """The seed of this run."""
    return int(os.environ.get(VARIABLE, "0"))


@cache
def seeded(purpose: str) -> random.Random:
    """The random numbers of a purpose: they follow from the seed and from the process of pytest-xdist."""
    return random.Random(f"{seed()} {os.environ.get('PYTEST_XDIST_WORKER', '')} {purpose}")


def new_name(prefix: str) -> str:
    """A name for a database, schema or the like that no other test of this run has."""
    return f"{prefix}{_dice_of_names().getrandbits(48):012x}"


@cache
def _dice_of_names() -> random.Random:
    # A server that outlives the run may still have the names of an earlier run with the same seed.
    given = any(re.fullmatch(r"ONEROW_TEST_\w+_URL", name) for name in os.environ)
    return random.SystemRandom() if given else seeded("names")
