"""Pytest plugin: ports, names and random numbers of tests come from one seed, so that two runs are alike.

The seed is ONEROW_TEST_SEED, else 0; `--random` draws one. pytest prints it at the end. Hypothesis tries the same
examples in each run, and new ones with `--random`.
"""

import os
import random
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.runner.seeded import VARIABLE, seed

# A busy machine is not a defect: no deadlines.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("gate", _PATIENT, max_examples=50, derandomize=True)
settings.register_profile("random", _PATIENT, max_examples=100)
settings.register_profile("soak", _PATIENT, max_examples=2_000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--random", action="store_true", help="another seed, and examples that no run has tried")


def pytest_configure(config: pytest.Config) -> None:
    chosen = config.getoption("random")
    if chosen and VARIABLE not in os.environ:
        os.environ[VARIABLE] = str(random.SystemRandom().randrange(2**32))  # worker processes inherit it
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("random" if chosen else "gate"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"seed: {seed()} ({VARIABLE}={seed()} repeats it)")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    random.seed(f"{seed()} {item.nodeid}")
    return (yield)
