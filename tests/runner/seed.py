"""Pytest plugin: ports, names and random numbers of tests come from one seed, so that two runs are alike.

The seed is ONEROW_TEST_SEED, else 0; `--random` draws one. pytest prints it at the end. Hypothesis tries the same
examples in each run, and new ones with `--random`.

PYTEST_DONT_REWRITE: conftest.py imports it, through the servers, before pytest does.
"""

import os
import random
import re
from collections.abc import Generator
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

_VARIABLE = "ONEROW_TEST_SEED"

# A busy machine is not a defect: no deadlines.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("gate", _PATIENT, max_examples=50, derandomize=True)
settings.register_profile("random", _PATIENT, max_examples=100)
settings.register_profile("soak", _PATIENT, max_examples=2_000)


@cache
def seeded(purpose: str) -> random.Random:
    """The random numbers of a purpose: they follow from the seed and from the process of pytest-xdist."""
    return random.Random(f"{_seed()} {os.environ.get('PYTEST_XDIST_WORKER', '')} {purpose}")


def new_name(prefix: str) -> str:
    """A name for a database, schema or the like that no other test of this run has."""
    return f"{prefix}{_dice_of_names().getrandbits(48):012x}"


@cache
def _dice_of_names() -> random.Random:
    # A server that outlives the run may still have the names of an earlier run with the same seed.
    given = any(re.fullmatch(r"ONEROW_TEST_\w+_URL", name) for name in os.environ)
    return random.SystemRandom() if given else seeded("names")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--random", action="store_true", help="another seed, and examples that no run has tried")


def pytest_configure(config: pytest.Config) -> None:
    chosen = config.getoption("random")
    if chosen and _VARIABLE not in os.environ:
        os.environ[_VARIABLE] = str(random.SystemRandom().randrange(2**32))  # worker processes inherit it
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("random" if chosen else "gate"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"seed: {_seed()} ({_VARIABLE}={_seed()} repeats it)")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    random.seed(f"{_seed()} {item.nodeid}")
    return (yield)


def _seed() -> int:
    return int(os.environ.get(_VARIABLE, "0"))
